/* Whole folders in and out: a listing, and entries put in place; no symlink is followed. */
#define _GNU_SOURCE
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 128
#define MAX_PATH_BYTES 4096
#define KEEP_OWNER 0xFFFFFFFFu

struct listing {
    struct buf out;
    uint32_t count, limit;
    unsigned char cut; /* there is more than may be listed */
    char path[MAX_PATH_BYTES];
    char *patterns[64];
    uint32_t n_patterns;
};

/* As tar has it: a pattern may begin at any part of the path, and its * goes across slashes. */
static int excluded(const struct listing *l) {
    for (uint32_t i = 0; i < l->n_patterns; i++)
        for (const char *at = l->path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
            if (!fnmatch(l->patterns[i], at, 0)) return 1;
    return 0;
}

static char kind_of(mode_t mode) {
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'o';
}

static void entry(struct listing *l, const struct stat *st, int dir, const char *name) {
    char kind = kind_of(st->st_mode), target[MAX_PATH_BYTES];
    ssize_t n = kind == 'l' ? readlinkat(dir, name, target, sizeof target) : 0;
    l->count++;
    buf_add(&l->out, &kind, 1);
    buf_u32(&l->out, st->st_mode & 07777);
    buf_u32(&l->out, (uint32_t)((uint64_t)st->st_size >> 32));
    buf_u32(&l->out, (uint32_t)st->st_size);
    buf_str(&l->out, l->path, strlen(l->path));
    buf_str(&l->out, target, n > 0 ? (size_t)n : 0);
}

/* Takes over the descriptor. */
static void walk(struct listing *l, int fd, int depth) {
    DIR *dir = fdopendir(fd);
    size_t length = strlen(l->path);
    if (!dir) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        size_t more = strlen(e->d_name) + (length > 0);
        if (length + more >= sizeof l->path || depth >= MAX_DEPTH || l->count >= l->limit ||
            l->out.len > MAX_MESSAGE / 2) {
            l->cut = 1;
            break;
        }
        if (length) l->path[length] = '/';
        strcpy(l->path + length + (length > 0), e->d_name);
        if (!excluded(l) && !fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) {
            entry(l, &st, dirfd(dir), e->d_name);
            int sub = S_ISDIR(st.st_mode)
                          ? open_plain(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY)
                          : -1;
            if (sub >= 0) walk(l, sub, depth + 1);
        }
        l->path[length] = 0;
    }
    closedir(dir);
}

/* Request: path, u32 limit, u32 count of patterns, those. Reply: u8 whether it
 * was cut short, u32 count, entries of kind (f, d, l, o), u32 mode,
 * u64 size, path below, a symlink's target. A file has one entry, whose path is empty. */
void tree_list(struct cursor *c, struct buf *reply) {
    struct listing l = {0};
    struct stat st;
    char *path = take_str(c, NULL);
    l.limit = take_u32(c);
    l.n_patterns = take_u32(c);
    if (c->bad || l.n_patterns > 64) return;
    for (uint32_t i = 0; i < l.n_patterns; i++) l.patterns[i] = take_str(c, NULL);
    if (c->bad) return;
    int fd = open_plain(AT_FDCWD, path, O_PATH), sub = -1;
    int bad = fd < 0 || fstat(fd, &st);
    if (!bad && S_ISDIR(st.st_mode)) bad = (sub = open_plain(fd, ".", O_RDONLY | O_DIRECTORY)) < 0;
    if (bad) {
        answer_errno(reply);
    } else {
        if (sub < 0) entry(&l, &st, fd, "");
        else walk(&l, sub, 0);
        buf_add(reply, "", 1); /* ST_OK */
        buf_add(reply, &l.cut, 1);
        buf_u32(reply, l.count);
        buf_add(reply, l.out.data, l.out.len);
    }
    if (fd >= 0) close(fd);
    buf_free(&l.out);
}

struct item {
    char kind, *path, *data;
    uint32_t mode, uid, gid, len;
};

static int put_all(int fd, const char *data, uint32_t len) {
    for (ssize_t n; len; data += n, len -= (uint32_t)n)
        if ((n = write(fd, data, len)) <= 0) return -1;
    return 0;
}

static int own(int dir, const char *name, const struct item *i) {
    uid_t uid = i->uid == KEEP_OWNER ? (uid_t)-1 : i->uid;
    gid_t gid = i->gid == KEEP_OWNER ? (gid_t)-1 : i->gid;
    if (uid == (uid_t)-1 && gid == (gid_t)-1) return 0;
    return fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static int open_into(int dir, const char *name) {
    int fd = open_plain(dir, name, O_PATH | O_DIRECTORY);
    if (fd < 0) return -1;
    close(fd);
    return 0;
}

/* A folder that is there keeps its content, and takes the mode unless only a place is made. */
static int put_folder(int dir, const char *name, const struct item *i) {
    int fresh = !mkdirat(dir, name, 0700);
    if (!fresh && errno != EEXIST) return -1;
    if (!fresh && i->kind == 'm') return open_into(dir, name);
    int fd = open_plain(dir, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return -1;
    int bad = own(dir, name, i) || fchmod(fd, i->mode & 07777);
    close(fd);
    return bad ? -1 : 0;
}

static int put_link(int dir, const char *name, const struct item *i) {
    if (unlinkat(dir, name, 0) && errno != ENOENT) return -1;
    return symlinkat(i->data, dir, name) || own(dir, name, i);
}

static int put_file(int dir, const char *name, const struct item *i) {
    static unsigned count;
    char aside[64];
    snprintf(aside, sizeof aside, ".trialog-put-%u", count++);
    int fd = openat(dir, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -1;
    int bad = put_all(fd, i->data, i->len) || own(dir, aside, i) || fchmod(fd, i->mode & 07777);
    close(fd);
    if (!bad && !renameat(dir, aside, dir, name)) return 0;
    int why = errno;
    unlinkat(dir, aside, 0);
    errno = why;
    return -1;
}

/* For a file that nothing can take the place of, as one that is mounted. */
static int put_within(int dir, const char *name, const struct item *i) {
    struct stat st;
    int fd = open_plain(dir, name, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    errno = EINVAL;
    int bad = fstat(fd, &st) || !S_ISREG(st.st_mode) || ftruncate(fd, 0) ||
              put_all(fd, i->data, i->len) || own(dir, name, i) || fchmod(fd, i->mode & 07777);
    close(fd);
    return bad ? -1 : 0;
}

static int put_more(int dir, const char *name, const struct item *i) {
    struct stat st;
    int fd = open_plain(dir, name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    errno = EINVAL;
    int bad = fstat(fd, &st) || !S_ISREG(st.st_mode) || put_all(fd, i->data, i->len);
    close(fd);
    return bad ? -1 : 0;
}

static int put(struct item *i, int follow) {
    char *name;
    int dir = open_parent(i->path, &name, follow), bad = -1;
    if (dir < 0) return -1;
    if (!*name) bad = 0; /* the root itself is there */
    else if (i->kind == 'd' || i->kind == 'm') bad = put_folder(dir, name, i);
    else if (i->kind == 'l') bad = put_link(dir, name, i);
    else if (i->kind == 'f') bad = put_file(dir, name, i);
    else if (i->kind == 'w') bad = put_within(dir, name, i);
    else if (i->kind == 'a') bad = put_more(dir, name, i);
    int why = errno;
    close(dir);
    errno = why;
    return bad;
}

/* Request: u32 whether symlinks to folders are followed (they lead nowhere but inside), u32 count,
 * then entries of kind (d, m: only a place for more, l, f, w: a file's content where it stands,
 * a: more of a file), u32 mode, u32 uid, u32 gid (all ones: as it comes), path, bytes or target.
 * Stops at the first that is refused. */
void tree_put(struct cursor *c, struct buf *reply) {
    uint32_t follow = take_u32(c), n = take_u32(c);
    for (uint32_t at = 0; at < n && !c->bad; at++) {
        struct item i = {.kind = (char)take_u32(c), .mode = take_u32(c)};
        i.uid = take_u32(c);
        i.gid = take_u32(c);
        i.path = take_str(c, NULL);
        i.data = take_str(c, &i.len);
        if (c->bad) return;
        char shown[256], said[512];
        snprintf(shown, sizeof shown, "%s", i.path);
        if (put(&i, follow)) {
            snprintf(said, sizeof said, "%s: %s", shown,
                     errno == ELOOP ? "a symlink is on the way" : strerror(errno));
            answer(reply, ST_REFUSED, said);
            return;
        }
    }
    if (!c->bad) answer(reply, ST_OK, "");
}
