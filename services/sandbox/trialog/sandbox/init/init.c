/* The sandbox's PID 1.
 *
 * init LISTEN_FD ORPHAN_MS KEEP_BYTES WATCH_BYTES WATCH_PIDS NONCE
 *
 * The nonce only names the process to whoever looks for it in /proc.
 * It listens on a socket handed in and answers the requests of enum op, one file each. A command
 * ends when its process exits, not when its pipes do. Results are kept by exec id: a repeated id is
 * answered from them, or waits for the run that is under way. When no connection has been open for
 * ORPHAN_MS (OP_ORPHAN: less) it exits, and the kernel kills everything inside with it.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CONNS 128
#define FIRST_CONTACT_MS 10000

struct conn {
    int fd;
    struct buf in, out;
    size_t sent;
    struct run *waits;
    int froze; /* all stands still until it says so, or is gone */
};

static struct settings settings;
static struct conn conns[MAX_CONNS];
static int n_conns;

static void send_reply(struct conn *c, const struct buf *reply) {
    buf_u32(&c->out, (uint32_t)reply->len);
    buf_add(&c->out, reply->data, reply->len);
}

static void send_result(struct conn *c, const struct run *r) {
    struct buf reply = {0};
    unsigned char status = r->dropped ? ST_DROPPED : ST_OK;
    buf_add(&reply, &status, 1);
    if (r->dropped) {
        buf_str(&reply, "", 0);
    } else {
        buf_u32(&reply, (uint32_t)r->code);
        buf_add(&reply, &r->flags, 1);
        buf_str(&reply, r->out[0].data, r->out[0].len);
        buf_str(&reply, r->out[1].data, r->out[1].len);
    }
    send_reply(c, &reply);
    buf_free(&reply);
}

static void on_end(struct run *r) {
    for (int i = 0; i < n_conns; i++)
        if (conns[i].waits == r) {
            send_result(&conns[i], r);
            conns[i].waits = NULL;
        }
    run_bound_kept(settings.keep_bytes);
}

static int exec_op(struct conn *c, struct cursor *body) {
    char *id = take_str(body, NULL);
    if (body->bad) return 0;
    struct run *r = run_find(id);
    if (!r) r = run_start(body, &settings, id);
    if (!r) return 0;
    if (r->ended) send_result(c, r);
    else c->waits = r;
    return 1;
}

static void handle(struct conn *c, unsigned char *data, size_t len) {
    struct cursor body = {data + 1, data + len, len < 1};
    struct buf reply = {0};
    switch (len ? data[0] : 0) {
    case OP_EXEC:
        if (exec_op(c, &body)) return;
        break;
    case OP_KILL_ALL:
        kill_everything(on_end);
        /* fall through */
    case OP_PING:
        buf_add(&reply, "", 1);
        break;
    case OP_READ:
        file_read(&body, &reply);
        break;
    case OP_WRITE:
        file_write(&body, &reply);
        break;
    case OP_EXIT:
        _exit(0);
    case OP_COUNT: /* the dead are not counted */
        buf_add(&reply, "", 1);
        buf_u32(&reply, (uint32_t)count_beside("ZX"));
        break;
    case OP_FREEZE:
        c->froze = 1;
        if (freeze_everything()) answer(&reply, ST_REFUSED, "a process does not stand still");
        else answer(&reply, ST_OK, "");
        break;
    case OP_THAW:
        c->froze = 0;
        thaw_everything();
        answer(&reply, ST_OK, "");
        break;
    case OP_LIST:
        tree_list(&body, &reply);
        break;
    case OP_CHUNK:
        file_chunk(&body, &reply);
        break;
    case OP_PUT:
        tree_put(&body, &reply);
        break;
    case OP_UNLINKED: {
        uint64_t bytes = unlinked_bytes();
        buf_add(&reply, "", 1);
        buf_u32(&reply, (uint32_t)(bytes >> 32));
        buf_u32(&reply, (uint32_t)bytes);
        break;
    }
    case OP_ORPHAN: /* request: u32 ms; never more than it was started with */
        settings.orphan_ms = take_u32(&body);
        if (settings.orphan_ms > settings.most_ms) settings.orphan_ms = settings.most_ms;
        buf_add(&reply, "", 1);
        break;
    case OP_STAT:
        file_stats(&body, &reply);
        break;
    }
    if (!reply.len) {
        unsigned char bad = ST_BAD;
        buf_add(&reply, &bad, 1);
        buf_str(&reply, "malformed request", 17);
    }
    send_reply(c, &reply);
    buf_free(&reply);
}

/* Returns 0 when the connection is over. One request at a time: the next waits for the reply. */
static int receive(struct conn *c) {
    char chunk[65536];
    ssize_t n = read(c->fd, chunk, sizeof chunk);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (n <= 0) return 0;
    buf_add(&c->in, chunk, n);
    while (c->in.len >= 4 && !c->waits) {
        struct cursor head = {c->in.data, c->in.data + 4, 0};
        size_t len = take_u32(&head);
        if (len > MAX_MESSAGE) return 0;
        if (c->in.len < 4 + len) break;
        handle(c, c->in.data + 4, len);
        memmove(c->in.data, c->in.data + 4 + len, c->in.len - 4 - len);
        c->in.len -= 4 + len;
    }
    return 1;
}

static int flush_out(struct conn *c) {
    ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += n;
    if (c->sent == c->out.len) {
        buf_free(&c->out);
        c->sent = 0;
    }
    return 1;
}

static void drop(int i) {
    if (conns[i].froze) thaw_everything();
    close(conns[i].fd);
    buf_free(&conns[i].in);
    buf_free(&conns[i].out);
    conns[i] = conns[--n_conns];
}

static void welcome(void) {
    int fd = accept4(settings.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) conns[n_conns++] = (struct conn){.fd = fd};
}

/* Fill the poll set: listener, signals, connections, then the pipes of every command. */
static int gather(struct pollfd **set, int signals) {
    static int cap;
    int n = 0, need = 2 + n_conns;
    for (struct run *r = run_first(); r; r = r->next) need += 2;
    if (need > cap) *set = must_alloc(*set, (cap = need * 2) * sizeof **set);
    (*set)[n++] = (struct pollfd){settings.listen_fd, n_conns < MAX_CONNS ? POLLIN : 0, 0};
    (*set)[n++] = (struct pollfd){signals, POLLIN, 0};
    for (int i = 0; i < n_conns; i++) {
        short wants = POLLIN | (conns[i].out.len ? POLLOUT : 0);
        (*set)[n++] = (struct pollfd){conns[i].fd, wants, 0};
    }
    for (struct run *r = run_first(); r; r = r->next)
        for (int which = 0; which < 2; which++)
            if (r->fd[which] >= 0) (*set)[n++] = (struct pollfd){r->fd[which], POLLIN, 0};
    return n;
}

static void serve_pipes(const struct pollfd *set, int n) {
    int at = 0;
    for (struct run *r = run_first(); r; r = r->next)
        for (int which = 0; which < 2; which++) {
            if (at < n && r->fd[which] >= 0 && set[at].fd == r->fd[which])
                if (set[at++].revents) run_drain(r, which);
        }
}

static void serve(int signals) {
    struct pollfd *set = NULL;
    int64_t alone_until = now_ms() + FIRST_CONTACT_MS;
    if (settings.orphan_ms > FIRST_CONTACT_MS) alone_until = now_ms() + settings.orphan_ms;
    for (;;) {
        int64_t wait = run_enforce(&settings, on_end), left = alone_until - now_ms();
        if (!n_conns && left <= 0) _exit(0);
        if (!n_conns && (wait < 0 || left < wait)) wait = left;
        int n = gather(&set, signals), base = 2 + n_conns;
        if (poll(set, n, wait < 0 ? -1 : wait > 60000 ? 60000 : (int)wait) < 0) continue;
        serve_pipes(set + base, n - base);
        if (set[1].revents) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) < 0 && errno != EAGAIN) _exit(124);
            run_reap(on_end);
        }
        for (int i = n_conns - 1; i >= 0; i--) {
            short got = set[2 + i].revents;
            int alive = !(got & (POLLIN | POLLHUP | POLLERR)) || receive(&conns[i]);
            if (alive && conns[i].out.len) alive = flush_out(&conns[i]);
            if (alive) continue;
            drop(i);
            if (!n_conns) alone_until = now_ms() + settings.orphan_ms;
        }
        if (set[0].revents) welcome();
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "launch")) return launch(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "handed")) return handed(argc - 1, argv + 1);
    if (argc == 2 && !strcmp(argv[1], "remove")) return remove_paths();
    if (argc != 7) return 125;
    settings = (struct settings){
        .listen_fd = atoi(argv[1]),
        .orphan_ms = atoll(argv[2]),
        .most_ms = atoll(argv[2]),
        .keep_bytes = strtoull(argv[3], NULL, 10),
        .watch_bytes = atoll(argv[4]),
        .watch_pids = atoll(argv[5]),
    };
    /* Not dumpable: a command of the same uid can neither trace PID 1 nor look into it. */
    umask(022);
    drop_what_is_not_needed();
    prctl(PR_SET_DUMPABLE, 0);
    fcntl(settings.listen_fd, F_SETFD, FD_CLOEXEC);
    fcntl(settings.listen_fd, F_SETFL, O_NONBLOCK);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write above the file size limit is refused, not deadly */
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) return 124;
    serve(signals);
    return 0;
}
