/* What files take that have no name any more: still open, they are in no folder's sum. */
#define _GNU_SOURCE
#include "init.h"

#include <dirent.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_LOOKED_AT 200000
#define MAX_FOUND 65536 /* a power of two: the table of those that were counted */

struct sum {
    uint64_t bytes;
    int looked_at, found;
    struct file {
        dev_t dev;
        ino_t ino;
    } *seen;
};

/* Whether a file is met for the first time; the table is never more than half full. */
static int is_new(struct sum *s, const struct stat *st) {
    size_t at = (size_t)st->st_ino * 2654435761u % MAX_FOUND;
    for (; s->seen[at].ino; at = (at + 1) % MAX_FOUND)
        if (s->seen[at].ino == st->st_ino && s->seen[at].dev == st->st_dev) return 0;
    s->seen[at] = (struct file){st->st_dev, st->st_ino};
    s->found++;
    return 1;
}

/* Memory's files (memfd, tmpfs) are counted as memory: only the disk's kind of filesystem is. */
static void add(struct sum *s, const char *path, long kind) {
    struct stat st;
    struct statfs fs;
    if (stat(path, &st) || st.st_nlink || !S_ISREG(st.st_mode)) return;
    if (statfs(path, &fs) || fs.f_type != kind) return;
    if (is_new(s, &st)) s->bytes += (uint64_t)st.st_blocks * 512;
}

static int too_many(const struct sum *s) {
    return s->looked_at > MAX_LOOKED_AT || s->found >= MAX_FOUND / 2;
}

static void add_open(struct sum *s, const char *task, long kind) {
    char path[128];
    snprintf(path, sizeof path, "%s/fd", task);
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; !too_many(s) && (e = readdir(dir));) {
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/fd/%.12s", task, e->d_name);
        s->looked_at++;
        add(s, path, kind);
    }
    closedir(dir);
}

/* A thread may have open files of its own, and the first one may have ended before the others. */
static void add_threads(struct sum *s, const char *pid, long kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%.12s/task", pid);
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; !too_many(s) && (e = readdir(dir));) {
        if (*e->d_name == '.') continue;
        int same = strcmp(e->d_name, pid) &&
                   !syscall(SYS_kcmp, atoi(pid), atoi(e->d_name), KCMP_FILES, 0, 0);
        if (same) continue;
        snprintf(path, sizeof path, "/proc/%.12s/task/%.12s", pid, e->d_name);
        add_open(s, path, kind);
    }
    closedir(dir);
}

/* Bytes on the disk of files without a name; more than any limit when there is too much open to
 * look at. */
uint64_t unlinked_bytes(void) {
    struct statfs root;
    struct sum s = {0};
    if (statfs(".", &root)) return 0; /* where we began: the root, or the world in it */
    DIR *dir = opendir("/proc");
    if (!dir) return 0;
    s.seen = memset(must_alloc(NULL, MAX_FOUND * sizeof *s.seen), 0, MAX_FOUND * sizeof *s.seen);
    for (struct dirent *e; !too_many(&s) && (e = readdir(dir));)
        if (atoi(e->d_name) > 1) add_threads(&s, e->d_name, root.f_type);
    closedir(dir);
    free(s.seen);
    return too_many(&s) ? UINT64_MAX : s.bytes;
}
