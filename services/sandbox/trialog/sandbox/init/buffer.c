/* Growing buffers, the wire's integers and strings, and a clock that nobody sets. */
#define _GNU_SOURCE
#include "init.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* PID 1 without memory cannot keep its promises: it ends, and the sandbox with it. */
void *must_alloc(void *old, size_t size) {
    void *p = realloc(old, size ? size : 1);
    if (!p) _exit(124);
    return p;
}

void buf_add(struct buf *b, const void *data, size_t len) {
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = must_alloc(b->data, b->cap);
    }
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buf_u32(struct buf *b, uint32_t v) {
    unsigned char w[4] = {v >> 24, v >> 16, v >> 8, v};
    buf_add(b, w, 4);
}

void buf_str(struct buf *b, const void *data, size_t len) {
    buf_u32(b, (uint32_t)len);
    buf_add(b, data, len);
    buf_add(b, "", 1);
}

void buf_free(struct buf *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}

uint32_t take_u32(struct cursor *c) {
    if (c->bad || c->end - c->at < 4) {
        c->bad = 1;
        return 0;
    }
    uint32_t v = (uint32_t)c->at[0] << 24 | c->at[1] << 16 | c->at[2] << 8 | c->at[3];
    c->at += 4;
    return v;
}

/* Returns a NUL-terminated string inside the message; len may be NULL for text without NULs. */
char *take_str(struct cursor *c, uint32_t *len) {
    uint32_t n = take_u32(c);
    if (c->bad || (size_t)(c->end - c->at) < (size_t)n + 1 || c->at[n] != 0) {
        c->bad = 1;
        if (len) *len = 0;
        return "";
    }
    char *s = (char *)c->at;
    c->at += (size_t)n + 1;
    if (len) *len = n;
    else if (strlen(s) != n) c->bad = 1;
    return s;
}
