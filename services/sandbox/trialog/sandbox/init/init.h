/* What the parts of the sandbox's PID 1 share: buffers, the wire format, and their entry points.
 *
 * Wire: every message is a u32 length and that many bytes, integers big-endian. A string is a u32
 * length, its bytes and a NUL. The Python side is bubblewrap/wire.py; keep both in step.
 */
#ifndef TRIALOG_INIT_H
#define TRIALOG_INIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum op {
    OP_PING = 1, OP_EXEC, OP_KILL_ALL, OP_READ, OP_WRITE, OP_EXIT,
    OP_COUNT, OP_FREEZE, OP_THAW, OP_LIST, OP_CHUNK, OP_PUT, OP_STAT,
    OP_UNLINKED = 14, OP_ORPHAN
};
enum status { ST_OK, ST_BAD, ST_DROPPED, ST_MISSING, ST_REFUSED };
enum flag { FLAG_TRUNCATED = 1, FLAG_TIMED_OUT = 2, FLAG_MEMORY = 4, FLAG_PIDS = 8 };

#define MAX_MESSAGE (64u << 20)

struct buf {
    unsigned char *data;
    size_t len, cap;
};

/* A cursor over a request; bad is set once and for all when it runs out. */
struct cursor {
    unsigned char *at, *end;
    int bad;
};

struct settings {
    int listen_fd;
    int64_t orphan_ms;  /* how long to live without any connection */
    int64_t most_ms;    /* the longest that this may be */
    size_t keep_bytes;  /* output kept for all ended commands together */
    int64_t watch_bytes; /* resident bytes above which all is killed; 0: a cgroup holds the limit */
    int64_t watch_pids;  /* processes above which all is killed; 0: a cgroup holds the limit */
};

struct run {
    char *id;
    pid_t pid;
    int fd[2]; /* stdout, stderr; kept open and discarded after the exit, -1 at EOF */
    struct buf out[2];
    uint32_t limit;
    int64_t deadline_ms;
    int ended, dropped;
    int32_t code;
    uint8_t flags;
    struct run *next;
};

/* buffer.c */
int64_t now_ms(void);
void *must_alloc(void *old, size_t size);
void buf_add(struct buf *b, const void *data, size_t len);
void buf_u32(struct buf *b, uint32_t v);
void buf_str(struct buf *b, const void *data, size_t len);
void buf_free(struct buf *b);
uint32_t take_u32(struct cursor *c);
char *take_str(struct cursor *c, uint32_t *len);

/* run.c */
struct run *run_first(void);
struct run *run_find(const char *id);
struct run *run_start(struct cursor *c, const struct settings *s, const char *id);
void run_drain(struct run *r, int which);
void run_reap(void (*on_end)(struct run *));
int64_t run_enforce(const struct settings *s, void (*on_end)(struct run *));
void run_bound_kept(size_t keep_bytes);
void kill_everything(void (*on_end)(struct run *));

/* procs.c */
void kill_tree(pid_t session);
int64_t census(int64_t *processes);
int64_t count_beside(const char *states);
int freeze_everything(void);
void stand_if_frozen(pid_t pid);
void thaw_everything(void);

/* unlinked.c */
uint64_t unlinked_bytes(void);

/* users.c */
void drop_what_is_not_needed(void);
int become_user(char *user, char ***env);

/* files.c: all append a whole reply (status and payload) */
int open_plain(int dir, const char *path, uint64_t flags);
int open_parent(char *path, char **name, int follow);
void answer(struct buf *reply, enum status status, const char *text);
void answer_errno(struct buf *reply);
void file_read(struct cursor *c, struct buf *reply);
void file_chunk(struct cursor *c, struct buf *reply);
void file_write(struct cursor *c, struct buf *reply);
void file_stats(struct cursor *c, struct buf *reply);

/* trees.c */
void tree_list(struct cursor *c, struct buf *reply);
void tree_put(struct cursor *c, struct buf *reply);

/* launch.c */
int launch(int argc, char **argv);

/* range.c */
#define STAGE "/tmp" /* on every host, open to all; bubblewrap begins there as well */
int enter_range(unsigned base, unsigned count, char *const *sources, int n);

/* handed.c */
int handed(int argc, char **argv);

/* remove.c */
int remove_paths(void);

#endif
