/* Commands: each runs once per id, in a session of its own, and its result is kept. */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct run *first, **last = &first;

struct run *run_first(void) { return first; }

struct run *run_find(const char *id) {
    for (struct run *r = first; r; r = r->next)
        if (!strcmp(r->id, id)) return r;
    return NULL;
}

static char **take_list(struct cursor *c) {
    uint32_t n = take_u32(c);
    if (c->bad || n > 65536) {
        c->bad = 1;
        n = 0;
    }
    char **list = must_alloc(NULL, (n + 1) * sizeof *list);
    for (uint32_t i = 0; i < n; i++) list[i] = take_str(c, NULL);
    list[n] = NULL;
    return list;
}

static void give_up(int code, const char *what) {
    dprintf(2, "%s: %s\n", what, strerror(errno));
    _exit(code);
}

/* In the child: nothing of PID 1 is left but three descriptors. */
static void become(const struct settings *s, char **argv, char **env, const char *cwd,
                   char *user, int in, int out, int err) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    if (s->watch_pids > 0) { /* held by the kernel, per user namespace, for all but host root */
        struct rlimit limit = {s->watch_pids, s->watch_pids};
        setrlimit(RLIMIT_NPROC, &limit);
    }
    umask(022);
    int there = !chdir(cwd); /* as root first: a user may be put where he could not go himself */
    if (become_user(user, &env)) _exit(126);
    if (!there && chdir(cwd)) give_up(126, cwd);
    environ = env;
    execvp(argv[0], argv);
    give_up(errno == ENOENT ? 127 : 126, argv[0]);
}

/* Standard input is a file, so nobody has to feed a pipe. */
static int stdin_of(const char *data, uint32_t len) {
    if (!len) return open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = memfd_create("stdin", MFD_CLOEXEC);
    while (fd >= 0 && len) {
        ssize_t n = write(fd, data, len);
        if (n <= 0) break;
        data += n;
        len -= n;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd;
}

static void spawn(struct run *r, const struct settings *s, char **argv, char **env,
                  const char *cwd, char *user, int in) {
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    r->code = 126;
    r->ended = 1;
    if (in >= 0 && !pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC)) {
        r->pid = fork();
        if (r->pid == 0) become(s, argv, env, cwd, user, in, out[1], err[1]);
        r->ended = r->pid < 0;
        if (r->pid > 0) stand_if_frozen(r->pid);
    }
    if (r->ended) {
        const char *why = strerror(errno);
        buf_add(&r->out[1], why, strlen(why));
        close(out[0]);
        close(err[0]);
    } else {
        r->fd[0] = out[0];
        r->fd[1] = err[0];
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
    }
    close(in);
    close(out[1]);
    close(err[1]);
}

/* Start a command; NULL when the request is malformed. What cannot be started ends with 126. */
struct run *run_start(struct cursor *c, const struct settings *s, const char *id) {
    char *cwd = take_str(c, NULL);
    uint32_t timeout_ms = take_u32(c), limit = take_u32(c), in_len;
    char **argv = take_list(c), **env = take_list(c);
    char *in = take_str(c, &in_len), *user = take_str(c, NULL);
    struct run *r = NULL;
    if (!c->bad && argv[0]) {
        r = must_alloc(NULL, sizeof *r);
        memset(r, 0, sizeof *r);
        r->id = strcpy(must_alloc(NULL, strlen(id) + 1), id);
        r->fd[0] = r->fd[1] = -1;
        r->limit = limit;
        r->deadline_ms = now_ms() + timeout_ms;
        spawn(r, s, argv, env, cwd, user, stdin_of(in, in_len));
        *last = r;
        last = &r->next;
    }
    free(argv);
    free(env);
    return r;
}

/* Take what a pipe holds: keep up to the limit, discard the rest and all after the exit. */
static ssize_t drain_once(struct run *r, int which) {
    char chunk[65536];
    ssize_t n = read(r->fd[which], chunk, sizeof chunk);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(r->fd[which]);
        r->fd[which] = -1;
    }
    if (n <= 0 || r->ended) return n;
    size_t room = r->limit - r->out[which].len;
    if ((size_t)n > room) r->flags |= FLAG_TRUNCATED;
    buf_add(&r->out[which], chunk, (size_t)n < room ? (size_t)n : room);
    return n;
}

void run_drain(struct run *r, int which) {
    if (r->fd[which] >= 0) drain_once(r, which);
}

/* A command ends when its process does, whoever still holds its pipes. What it wrote before is in
 * them; the bound (a pipe holds at most 1 MiB) keeps a flooding child from holding us here. */
static void finish(struct run *r, int status) {
    for (int which = 0; which < 2; which++)
        for (size_t seen = 0; r->fd[which] >= 0 && seen < (1u << 20);) {
            ssize_t n = drain_once(r, which);
            if (n <= 0) break;
            seen += n;
        }
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    r->ended = 1;
}

static void reaped(pid_t pid, int status, void (*on_end)(struct run *)) {
    for (struct run *r = first; r; r = r->next)
        if (r->pid == pid && !r->ended) {
            finish(r, status);
            on_end(r);
            return;
        }
}

void run_reap(void (*on_end)(struct run *)) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) reaped(pid, status, on_end);
}

/* Orphans come to us as their parents die, so "no children" means that nothing is left inside. */
void kill_everything(void (*on_end)(struct run *)) {
    int status;
    kill(-1, SIGKILL);
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR;)
        if (pid > 0) reaped(pid, status, on_end);
}

/* The watchdog where no cgroup holds the limits: above one, everything inside is killed, and waited
 * for: what dies still has its memory, and the next command would pay for it. */
static void watch(const struct settings *s, void (*on_end)(struct run *)) {
    int64_t processes, bytes = census(&processes);
    uint8_t over = s->watch_bytes > 0 && bytes > s->watch_bytes ? FLAG_MEMORY : 0;
    if (s->watch_pids > 0 && processes > s->watch_pids) over |= FLAG_PIDS;
    if (!over) return;
    for (struct run *r = first; r; r = r->next)
        if (!r->ended) r->flags |= over;
    kill_everything(on_end);
}

/* Kill what is over its time or limits; returns the ms until the next look, -1 for never. */
int64_t run_enforce(const struct settings *s, void (*on_end)(struct run *)) {
    int64_t now = now_ms(), next = -1;
    int live = 0;
    for (struct run *r = first; r; r = r->next) {
        if (r->ended) continue;
        live = 1;
        if (now >= r->deadline_ms) {
            r->flags |= FLAG_TIMED_OUT;
            kill_tree(r->pid);
            r->deadline_ms = now + 100; /* again, should it linger */
        }
        int64_t left = r->deadline_ms - now;
        if (next < 0 || left < next) next = left;
    }
    if (live && (s->watch_bytes > 0 || s->watch_pids > 0)) {
        watch(s, on_end);
        if (next < 0 || next > 100) next = 100;
    }
    return next;
}

/* Drop the oldest outputs above the bound; their ids stay, so nothing is ever run twice. */
void run_bound_kept(size_t keep_bytes) {
    size_t total = 0;
    for (struct run *r = first; r; r = r->next) total += r->out[0].len + r->out[1].len;
    for (struct run *r = first; r && total > keep_bytes; r = r->next) {
        if (!r->ended || r->dropped || !(r->out[0].len + r->out[1].len)) continue;
        total -= r->out[0].len + r->out[1].len;
        buf_free(&r->out[0]);
        buf_free(&r->out[1]);
        r->dropped = 1;
    }
}
