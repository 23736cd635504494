/* Users of commands, as the sandbox's own /etc/passwd and /etc/group name them. */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_GROUPS 64
#define MAX_FILE (4u << 20)

/* bubblewrap leaves the bounding set full, and what it grants inheritable: keep neither. Looking
 * into other users' processes is ours alone: no command gets it. */
void drop_what_is_not_needed(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct has[2];
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, has)) return;
    for (unsigned cap = 0; cap < 64; cap++)
        if (cap == CAP_SYS_PTRACE || !(has[cap / 32].permitted & 1u << cap % 32))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    has[0].inheritable = has[1].inheritable = 0;
    syscall(SYS_capset, &head, has);
}

/* A file's text, or NULL; commands may have put anything there. */
static char *text_of(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return NULL;
    char *text = NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= MAX_FILE) {
        text = must_alloc(NULL, st.st_size + 1);
        ssize_t n = read(fd, text, st.st_size);
        text[n > 0 ? n : 0] = 0;
    }
    close(fd);
    return text;
}

static int number(const char *text, unsigned *value) {
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n >= 0xFFFFFFFFul) return 0;
    *value = (unsigned)n;
    return 1;
}

/* Split one line of a colon-separated file; returns how many fields it has. */
static int fields(char *line, char **field, int n) {
    int i = 0;
    for (char *part; i < n && (part = strsep(&line, ":"));) field[i++] = part;
    return i;
}

struct account {
    unsigned uid, gid;
    char *name, *home;
};

/* A name wins over a number, as elsewhere; a number needs no line of its own. */
static int account_of(const char *who, char *passwd, struct account *a) {
    unsigned uid = 0;
    int by_number = number(who, &uid), found = 0;
    for (char *line; (line = strsep(&passwd, "\n"));) {
        char *f[7];
        unsigned u, g;
        if (fields(line, f, 7) < 6 || !number(f[2], &u) || !number(f[3], &g)) continue;
        int named = !strcmp(f[0], who);
        if (!named && (found || !by_number || u != uid)) continue;
        *a = (struct account){u, g, f[0], f[5]};
        found = 1;
        if (named) break;
    }
    if (!found && by_number) *a = (struct account){uid, 0, NULL, "/"};
    return found || by_number;
}

static int group_of(const char *which, char *group, gid_t *gid) {
    for (char *line; (line = strsep(&group, "\n"));) {
        char *f[4];
        if (fields(line, f, 4) >= 3 && !strcmp(f[0], which) && number(f[2], gid)) return 1;
    }
    return number(which, gid);
}

/* The groups that list a name as their member. */
static int groups_with(const char *name, char *group, gid_t *into) {
    int n = 0;
    for (char *line; name && n < MAX_GROUPS && (line = strsep(&group, "\n"));) {
        char *f[4];
        if (fields(line, f, 4) < 4 || !number(f[2], &into[n])) continue;
        for (char *member; (member = strsep(&f[3], ","));)
            if (!strcmp(member, name)) {
                n++;
                break;
            }
    }
    return n;
}

static int refused(const char *what, const char *who, int with_reason) {
    dprintf(2, "%s %s%s%s\n", what, who, with_reason ? ": " : "",
            with_reason ? strerror(errno) : "");
    return -1;
}

static void set_home(char ***env, const char *home) {
    int n = 0;
    for (; (*env)[n]; n++)
        if (!strncmp((*env)[n], "HOME=", 5)) return;
    char **more = must_alloc(NULL, (n + 2) * sizeof *more);
    memcpy(more, *env, n * sizeof *more);
    more[n] = must_alloc(NULL, strlen(home) + 6);
    strcat(strcpy(more[n], "HOME="), home);
    more[n + 1] = NULL;
    *env = more;
}

/* In a command's child: become USER[:GROUP], with HOME where none is given; empty is root as is. */
int become_user(char *user, char ***env) {
    struct account a = {0};
    gid_t groups[MAX_GROUPS + 1];
    if (!*user) return 0;
    char *who = strsep(&user, ":"), *passwd = text_of("/etc/passwd");
    char *group = text_of("/etc/group"), *again = group ? strdup(group) : NULL;
    if (!account_of(who, passwd, &a)) return refused("there is no user", who, 0);
    if (user && !group_of(user, again, &a.gid)) return refused("there is no group", user, 0);
    int n = user ? 0 : groups_with(a.name, group, groups);
    groups[n++] = a.gid;
    set_home(env, a.home);
    if (a.uid == 0 && a.gid == 0 && setgroups(n, groups)) n = 0; /* a namespace of one id */
    else if (setgroups(n, groups) || setresgid(a.gid, a.gid, a.gid))
        return refused("cannot become", who, 1);
    if (setresuid(a.uid, a.uid, a.uid)) return refused("cannot become", who, 1);
    return 0;
}
