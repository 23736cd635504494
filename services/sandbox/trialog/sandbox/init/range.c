/* `init launch -u`: a user namespace with a range of ids, and the folders that it may see.
 *
 * Only root may map a range. After the mapping nothing of root is left in the process: bubblewrap,
 * too, runs as the range's first id, to whom the folders on the way to a sandbox can be closed.
 * So they are brought before its eyes first, by descriptor, in a mount namespace of its own.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#endif
#define CLONE_TREE (1 | O_CLOEXEC) /* OPEN_TREE_CLONE */
#define FROM_DESCRIPTOR 4          /* MOVE_MOUNT_F_EMPTY_PATH */
#define MAX_SHOWN 64
#define OWNERS 0x70000000 /* far above what hosts give to users; one for each pid */
#define MAX_OWNERS (1 << 22)

static int failed(const char *what, const char *name) {
    dprintf(2, "%s %s: %s\n", what, name, strerror(errno));
    return -1;
}

/* Bind each source to STAGE/<its place in the list>; the stage hides what was there. */
static int show(char *const *sources, int n) {
    int trees[MAX_SHOWN];
    if (n > MAX_SHOWN) return failed("too many folders for", STAGE);
    if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return failed("mount namespace", "");
    for (int i = 0; i < n; i++) {
        trees[i] = (int)syscall(SYS_open_tree, AT_FDCWD, sources[i], CLONE_TREE);
        if (trees[i] < 0) return failed("open_tree", sources[i]);
    }
    if (mount("stage", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m"))
        return failed("mount", STAGE);
    for (int i = 0; i < n; i++) {
        char place[32];
        struct stat st;
        snprintf(place, sizeof place, STAGE "/%d", i);
        if (fstat(trees[i], &st)) return failed("stat", sources[i]);
        int made = S_ISDIR(st.st_mode) ? mkdir(place, 0755) : mknod(place, S_IFREG | 0644, 0);
        if (made || syscall(SYS_move_mount, trees[i], "", AT_FDCWD, place, FROM_DESCRIPTOR))
            return failed("move_mount", place);
        close(trees[i]);
    }
    return 0;
}

static int put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok ? 0 : failed("write", path);
}

/* A namespace's maps are written from outside of it: by a child that stayed there. */
static int map_from_outside(pid_t inner, unsigned base, unsigned count) {
    char path[64], text[64];
    snprintf(text, sizeof text, "0 %u %u\n", base, count);
    snprintf(path, sizeof path, "/proc/%d/uid_map", inner);
    if (put(path, text)) return -1;
    snprintf(path, sizeof path, "/proc/%d/gid_map", inner);
    return put(path, text);
}

static int enter(unsigned base, unsigned count) {
    int go[2], status;
    char c;
    if (pipe2(go, O_CLOEXEC)) return failed("pipe", "");
    pid_t self = getpid(), mapper = fork();
    if (mapper < 0) return failed("fork", "");
    if (mapper == 0) {
        close(go[1]);
        _exit(read(go[0], &c, 1) == 1 && !map_from_outside(self, base, count) ? 0 : 1);
    }
    close(go[0]);
    /* What all inside hold of inotify and the like is charged to the namespace's owner: not root,
     * whose own share of the host would be spent by it, but an id that one sandbox has alone. */
    if (seteuid(OWNERS + self % MAX_OWNERS) || unshare(CLONE_NEWUSER))
        return failed("user namespace", "");
    if (write(go[1], "", 1) != 1 || waitpid(mapper, &status, 0) != mapper || status)
        return failed("mapping of", "the user namespace");
    close(go[1]);
    if (setgroups(0, NULL) || setresgid(0, 0, 0) || setresuid(0, 0, 0))
        return failed("become", "the range's first id");
    return 0;
}

/* Enter a namespace in which 0..count-1 are the host's base..; no other may be made inside it. */
int enter_range(unsigned base, unsigned count, char *const *sources, int n) {
    if (show(sources, n) || enter(base, count)) return -1;
    return put("/proc/sys/user/max_user_namespaces", "0\n");
}
