/* Files by name from outside: no symlink is followed, nothing but a plain file is opened. */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define PROC_MAGIC 0x9fa0
#define RESOLVE_NO_LINKS (0x02 | 0x04) /* NO_MAGICLINKS | NO_SYMLINKS */
#define RESOLVE_INSIDE (0x02)          /* NO_MAGICLINKS; our root is the sandbox's */

struct how {
    uint64_t flags, mode, resolve;
};

static int open_how(int dir, const char *path, uint64_t flags, uint64_t resolve) {
    struct how how = {flags | O_CLOEXEC, 0, resolve};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

int open_plain(int dir, const char *path, uint64_t flags) {
    return open_how(dir, path, flags, RESOLVE_NO_LINKS);
}

void answer(struct buf *reply, enum status status, const char *text) {
    unsigned char s = status;
    reply->len = 0;
    buf_add(reply, &s, 1);
    buf_str(reply, text, strlen(text));
}

void answer_errno(struct buf *reply) {
    answer(reply, errno == ENOENT ? ST_MISSING : ST_REFUSED,
           errno == ELOOP ? "a symlink is on the way" : strerror(errno));
}

/* Look through O_PATH first: opening a device or FIFO can already have an effect. */
static int open_regular(const char *path, struct stat *st, struct buf *reply) {
    struct stat again;
    struct statfs fs;
    int look = open_plain(AT_FDCWD, path, O_PATH);
    if (look < 0 || fstat(look, st) || fstatfs(look, &fs)) {
        answer_errno(reply);
        if (look >= 0) close(look);
        return -1;
    }
    close(look);
    if (!S_ISREG(st->st_mode) || fs.f_type == PROC_MAGIC) {
        answer(reply, ST_REFUSED, "not a regular file");
        return -1;
    }
    int fd = open_plain(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &again)) {
        answer_errno(reply);
    } else if (again.st_ino != st->st_ino || again.st_dev != st->st_dev) {
        answer(reply, ST_REFUSED, "the file changed while it was opened");
    } else {
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

/* Request: path, u32 limit. Reply: the bytes; refused above the limit, however it grows. */
void file_read(struct cursor *c, struct buf *reply) {
    char *path = take_str(c, NULL), chunk[65536];
    uint32_t limit = take_u32(c);
    struct stat st;
    struct buf data = {0};
    if (c->bad) return;
    int fd = open_regular(path, &st, reply);
    if (fd < 0) return;
    ssize_t n = st.st_size > limit ? (ssize_t)limit + 1 : 0;
    while (!n && (n = read(fd, chunk, sizeof chunk)) > 0) {
        buf_add(&data, chunk, n);
        n = data.len > limit ? n : 0;
    }
    if (n > 0) {
        answer(reply, ST_REFUSED, "larger than the limit");
    } else if (n < 0) {
        answer_errno(reply);
    } else {
        buf_add(reply, "", 1); /* ST_OK */
        buf_str(reply, data.data, data.len);
    }
    buf_free(&data);
    close(fd);
}

/* Request: path, u64 offset, u32 length. Reply: the bytes there, fewer at the file's end. */
void file_chunk(struct cursor *c, struct buf *reply) {
    char *path = take_str(c, NULL);
    uint64_t offset = (uint64_t)take_u32(c) << 32;
    offset |= take_u32(c);
    uint32_t length = take_u32(c), got = 0;
    struct stat st;
    if (c->bad || length > MAX_MESSAGE / 2) return;
    int fd = open_regular(path, &st, reply);
    if (fd < 0) return;
    char *data = must_alloc(NULL, length);
    ssize_t n = 1;
    while (got < length && (n = pread(fd, data + got, length - got, (off_t)(offset + got))) > 0)
        got += n;
    if (n < 0) {
        answer_errno(reply);
    } else {
        buf_add(reply, "", 1); /* ST_OK */
        buf_str(reply, data, got);
    }
    free(data);
    close(fd);
}

static void buf_u64(struct buf *b, uint64_t v) {
    buf_u32(b, (uint32_t)(v >> 32));
    buf_u32(b, (uint32_t)v);
}

/* Request: u32 count, paths. Reply: for each, kind (f, d, o; -: not there, or behind a symlink),
 * u32 mode, u32 uid, u32 gid, u64 size, u64 bytes on the disk, u64 time of change. */
void file_stats(struct cursor *c, struct buf *reply) {
    uint32_t n = take_u32(c);
    struct buf found = {0};
    for (uint32_t at = 0; at < n && !c->bad; at++) {
        struct stat st = {0};
        int fd = open_plain(AT_FDCWD, take_str(c, NULL), O_PATH);
        char kind = fd < 0 || fstat(fd, &st) ? '-'
                    : S_ISREG(st.st_mode)    ? 'f'
                    : S_ISDIR(st.st_mode)    ? 'd'
                                             : 'o';
        if (fd >= 0) close(fd);
        buf_add(&found, &kind, 1);
        buf_u32(&found, st.st_mode & 07777);
        buf_u32(&found, st.st_uid);
        buf_u32(&found, st.st_gid);
        buf_u64(&found, (uint64_t)st.st_size);
        buf_u64(&found, (uint64_t)st.st_blocks * 512);
        buf_u64(&found, (uint64_t)st.st_mtime);
    }
    if (!c->bad) {
        buf_add(reply, "", 1); /* ST_OK */
        buf_str(reply, found.data, found.len);
    }
    buf_free(&found);
}

/* Open the folder of a path, making what is missing; *name is left at the last part. */
int open_parent(char *path, char **name, int follow) {
    int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *part = path + strspn(path, "/");
    for (char *slash; dir >= 0 && (slash = strchr(part, '/')); part = slash + 1) {
        *slash = 0;
        if (mkdirat(dir, part, 0755) && errno != EEXIST && errno != EROFS) {
            close(dir);
            return -1;
        }
        int next = open_how(dir, part, O_PATH | O_DIRECTORY,
                            follow ? RESOLVE_INSIDE : RESOLVE_NO_LINKS);
        close(dir);
        dir = next;
    }
    *name = part;
    return dir;
}

/* Request: path, u32 mode, bytes. The file appears whole: written aside, then renamed over what is there. */
void file_write(struct cursor *c, struct buf *reply) {
    static unsigned count;
    uint32_t len;
    char aside[64], *name, *path = take_str(c, NULL);
    uint32_t mode = take_u32(c) & 07777;
    char *data = take_str(c, &len);
    if (c->bad) return;
    int dir = open_parent(path, &name, 0);
    if (dir < 0) {
        answer_errno(reply);
        return;
    }
    snprintf(aside, sizeof aside, ".trialog-write-%u", count++);
    int fd = openat(dir, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    ssize_t n = 0;
    while (fd >= 0 && len && (n = write(fd, data, len)) > 0) {
        data += n;
        len -= n;
    }
    if (fd < 0 || n < 0 || len || fchmod(fd, mode) || renameat(dir, aside, dir, name)) {
        answer_errno(reply);
        if (fd >= 0) unlinkat(dir, aside, 0);
    } else {
        answer(reply, ST_OK, "");
    }
    if (fd >= 0) close(fd);
    close(dir);
}
