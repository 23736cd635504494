/* Takes the listening socket from outside, then runs PID 1 with it.
 *
 * init handed PATH WORD...
 *
 * For a container, to which no descriptor can be passed: whoever started it listens at PATH, hands
 * over a listening socket (SCM_RIGHTS) that is bound where nobody inside can reach it, and removes
 * PATH. WORD... is then executed with that socket as descriptor 3.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HANDED_FD 3

static int take(int channel) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd = -1;
    if (recvmsg(channel, &message, 0) != 1) return -1;
    struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    if (with && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(with), sizeof fd);
    return fd;
}

int handed(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc < 3 || strlen(argv[1]) >= sizeof address.sun_path) return 125;
    strcpy(address.sun_path, argv[1]);
    int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (channel < 0 || connect(channel, (struct sockaddr *)&address, sizeof address)) {
        dprintf(2, "%s: %s\n", argv[1], strerror(errno));
        return 125;
    }
    int fd = take(channel);
    if (fd < 0) {
        dprintf(2, "%s: no socket came\n", argv[1]);
        return 125;
    }
    /* The channel usually is 3 itself: the copy takes its place. */
    if (fd != HANDED_FD && (dup2(fd, HANDED_FD) < 0 || close(fd))) return 125;
    execv(argv[2], argv + 2);
    dprintf(2, "%s: %s\n", argv[2], strerror(errno));
    return 125;
}
