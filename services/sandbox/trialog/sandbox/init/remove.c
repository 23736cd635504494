/* Removes paths, for a state that is laid over an image whose own rm need not exist.
 *
 * init remove < PATHS
 *
 * Each path is absolute and ends in a NUL. What is not there is no fault; no symlink is followed.
 * What is mounted stays, and the folders that it is in.
 */
#define _GNU_SOURCE
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATH_BYTES 4096

static int stays; /* something mounted was met */

static int gone(int parent, const char *name) {
    if (!unlinkat(parent, name, 0) || errno == ENOENT) return 1;
    if (errno == EBUSY) return stays = 1;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) return 0;
    int all = 1;
    for (struct dirent *e; all && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) all = gone(fd, e->d_name);
    closedir(dir);
    if (all && !unlinkat(parent, name, AT_REMOVEDIR)) return 1;
    return all && stays && (errno == ENOTEMPTY || errno == EBUSY);
}

static int removed(char *path) {
    char *name = strrchr(path, '/');
    if (path[0] != '/' || !name[1]) return 0;
    *name = 0;
    int parent = open_plain(AT_FDCWD, name == path ? "/" : path, O_RDONLY | O_DIRECTORY);
    if (parent < 0) return errno == ENOENT;
    int done = gone(parent, name + 1);
    close(parent);
    *name = '/';
    return done;
}

int remove_paths(void) {
    char path[MAX_PATH_BYTES];
    size_t length = 0;
    for (int c; (c = getchar()) != EOF;) {
        if (length == sizeof path) return 125;
        path[length++] = (char)c;
        if (c) continue;
        if (!removed(path)) {
            dprintf(2, "%s: %s\n", path, strerror(errno));
            return 1;
        }
        length = 0;
    }
    return length ? 125 : 0;
}
