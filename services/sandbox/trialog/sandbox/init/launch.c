/* `init launch`: joins cgroups and sets rlimits in the short moment between fork and exec.
 *
 * launch [-c CGROUP_DIR]... [-f FSIZE_BYTES] [-n FILES] [-u BASE:COUNT [-s PATH]...] -- PROGRAM [ARG]...
 *
 * -u maps the ids 0..COUNT-1 of a new user namespace to the host's BASE..; each -s PATH is then to
 * be found at STAGE/0, STAGE/1 ... (range.c).
 *
 * Done here because a fork hook in a threaded Python process is unsafe and slow.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int put(const char *dir, const char *file, const char *text) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", dir, file) >= (int)sizeof path) return -1;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok ? 0 : -1;
}

static void limit(int resource, rlim_t value) {
    struct rlimit l;
    if (getrlimit(resource, &l)) return;
    if (l.rlim_max != RLIM_INFINITY && value > l.rlim_max) value = l.rlim_max;
    l.rlim_cur = l.rlim_max = value;
    setrlimit(resource, &l);
}

int launch(int argc, char **argv) {
    rlim_t files = 4096;
    unsigned base = 0, count = 0;
    char *shown[64];
    int n_shown = 0;
    for (int opt; (opt = getopt(argc, argv, "+c:f:n:u:s:")) != -1;) {
        if (opt == 'c' && put(optarg, "/cgroup.procs", "0")) {
            dprintf(2, "cannot join cgroup %s: %s\n", optarg, strerror(errno));
            return 125;
        }
        if (opt == 'f') limit(RLIMIT_FSIZE, strtoull(optarg, NULL, 10));
        if (opt == 'n') files = strtoull(optarg, NULL, 10);
        if (opt == 'u' && sscanf(optarg, "%u:%u", &base, &count) != 2) return 125;
        if (opt == 's' && n_shown < 64) shown[n_shown++] = optarg;
        if (opt == '?') return 125;
    }
    if (optind >= argc) return 125;
    /* 1, not 0: also a core_pattern that names a pipe is refused then. */
    limit(RLIMIT_CORE, 1);
    limit(RLIMIT_NOFILE, files);
    limit(RLIMIT_MEMLOCK, 64 << 10);
    /* The kernel should end a sandbox before any of our own processes. Cannot fail usefully. */
    put("/proc", "/self/oom_score_adj", "500");
    if (count && enter_range(base, count, shown, n_shown)) return 125;
    execv(argv[optind], argv + optind);
    dprintf(2, "%s: %s\n", argv[optind], strerror(errno));
    return 125;
}
