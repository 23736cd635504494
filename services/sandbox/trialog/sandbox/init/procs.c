/* Looking at the sandbox's processes through its own /proc. */
#define _GNU_SOURCE
#include "init.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_MARKED 4096
#define FREEZE_MS 5000
#define VFORK_MS 20

static int slurp(const char *pid, const char *name, char *into, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, into, size - 1);
    close(fd);
    if (n <= 0) return 0;
    into[n] = 0;
    return 1;
}

/* The name in stat is chosen by the process: parse after its last parenthesis. */
static int parents(const char *pid, pid_t *parent, pid_t *session) {
    char text[1024];
    int group;
    if (!slurp(pid, "stat", text, sizeof text)) return 0;
    char *after = strrchr(text, ')');
    return after && sscanf(after + 1, " %*c %d %d %d", parent, &group, session) == 3;
}

static int marked(const pid_t *set, int n, pid_t pid) {
    for (int i = 0; i < n; i++)
        if (set[i] == pid) return 1;
    return 0;
}

/* Kill a command's session and every descendant that /proc still ties to it. Each is stopped when
 * found, so its parent cannot vanish before its children are seen; the scan repeats until it finds
 * nothing new. A daemon that left both session and lineage earlier is kill_everything's to end. */
void kill_tree(pid_t session) {
    static pid_t set[MAX_MARKED];
    int n = 0, grew = 1;
    kill(session, SIGSTOP);
    set[n++] = session;
    for (int round = 0; grew && round < 64; round++) {
        grew = 0;
        DIR *dir = opendir("/proc");
        if (!dir) break;
        for (struct dirent *e; (e = readdir(dir)) && n < MAX_MARKED;) {
            pid_t pid = atoi(e->d_name), parent, sid;
            if (!isdigit((unsigned char)e->d_name[0]) || pid == 1 || marked(set, n, pid)) continue;
            if (!parents(e->d_name, &parent, &sid)) continue;
            if (sid != session && !marked(set, n, parent)) continue;
            kill(pid, SIGSTOP);
            set[n++] = pid;
            grew = 1;
        }
        closedir(dir);
    }
    if (grew || n == MAX_MARKED) kill(-1, SIGKILL); /* it forks faster than we look */
    for (int i = 0; i < n; i++) kill(set[i], SIGKILL);
}

static char state_in(const char *stat, const char *pid, long *threads) {
    char text[1024], state = 'X', *after;
    *threads = 0;
    if (slurp(pid, stat, text, sizeof text) && (after = strrchr(text, ')')))
        sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
               &state, threads);
    return state;
}

/* A process's state is that of its first thread, which may have ended, or stand, before the others:
 * it is what its least still thread is. */
static char state_of(const char *pid) {
    static const char order[] = "XZTtD"; /* all else moves */
    char path[64], name[64];
    long threads;
    char state = state_in("stat", pid, &threads);
    if (threads < 2) return state;
    snprintf(path, sizeof path, "/proc/%.20s/task", pid);
    DIR *dir = opendir(path);
    if (!dir) return state;
    for (struct dirent *e; strchr(order, state) && (e = readdir(dir));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        snprintf(name, sizeof name, "task/%.20s/stat", e->d_name);
        char its = state_in(name, pid, &threads);
        if (!strchr(order, its) || strchr(order, its) > strchr(order, state)) state = its;
    }
    closedir(dir);
    return state;
}

/* How many processes are in none of the states. */
int64_t count_beside(const char *states) {
    int64_t n = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return 1;
    for (struct dirent *e; (e = readdir(dir));)
        if (isdigit((unsigned char)e->d_name[0]) && strcmp(e->d_name, "1"))
            n += !strchr(states, state_of(e->d_name));
    closedir(dir);
    return n;
}

/* Whether a process has a child that was stopped. */
static int has_stopped_child(pid_t of) {
    int found = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return 0;
    for (struct dirent *e; !found && (e = readdir(dir));) {
        pid_t parent, sid;
        if (!isdigit((unsigned char)e->d_name[0]) || state_of(e->d_name) != 'T') continue;
        found = parents(e->d_name, &parent, &sid) && parent == of;
    }
    closedir(dir);
    return found;
}

/* Nothing stops a parent in vfork (D) while its child, stopped, has not executed anything: it
 * stands by itself. A D of another kind is over soon, and is waited for. */
static int all_stand(int patient) {
    int all = 1;
    DIR *dir = opendir("/proc");
    if (!dir) return 0;
    for (struct dirent *e; all && (e = readdir(dir));) {
        if (!isdigit((unsigned char)e->d_name[0]) || !strcmp(e->d_name, "1")) continue;
        char state = state_of(e->d_name);
        all = strchr("TtZX", state) || (state == 'D' && patient && has_stopped_child(atoi(e->d_name)));
    }
    closedir(dir);
    return all;
}

static int frozen;
static pid_t stood[MAX_MARKED]; /* what was stopped by others, and stays so when we go on */
static int n_stood;

/* Stop all but us; 0 when all stand. No process gets away: a fork with a signal pending starts
 * anew, and kill(-1) sees every process that is. Ended ones (Z, X) write nothing any more. */
int freeze_everything(void) {
    frozen = 1;
    n_stood = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return -1;
    for (struct dirent *e; (e = readdir(dir)) && n_stood < MAX_MARKED;)
        if (isdigit((unsigned char)e->d_name[0]) && state_of(e->d_name) == 'T')
            stood[n_stood++] = atoi(e->d_name);
    closedir(dir);
    kill(-1, SIGSTOP);
    struct timespec pause = {0, 500000};
    for (int64_t began = now_ms(); !all_stand(now_ms() - began > VFORK_MS);) {
        if (now_ms() - began > FREEZE_MS) return -1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* A command that is asked for meanwhile begins when all goes on. */
void stand_if_frozen(pid_t pid) {
    if (frozen) kill(pid, SIGSTOP);
}

void thaw_everything(void) {
    frozen = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        pid_t pid = atoi(e->d_name);
        if (pid > 1 && !marked(stood, n_stood, pid)) kill(pid, SIGCONT);
    }
    closedir(dir);
    n_stood = 0;
}

/* Resident bytes and number of everything inside but PID 1; shared pages count once a process. */
int64_t census(int64_t *processes) {
    int64_t total = 0;
    *processes = 0;
    DIR *dir = opendir("/proc");
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char text[256];
        long size, resident;
        if (!isdigit((unsigned char)e->d_name[0]) || !strcmp(e->d_name, "1")) continue;
        if (!slurp(e->d_name, "statm", text, sizeof text)) continue;
        ++*processes;
        if (sscanf(text, "%ld %ld", &size, &resident) == 2) total += (int64_t)resident;
    }
    closedir(dir);
    return total * sysconf(_SC_PAGESIZE);
}
