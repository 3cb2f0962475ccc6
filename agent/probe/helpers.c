/* What the attempts are surrounded by: the other sandbox, and somebody who changes paths under the file API. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { EXCHANGE = 2, BACKLOG = 16 };

static int listening(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, address, size) < 0 || listen(fd, BACKLOG) < 0)
        exit(not_tried("listen: %s", strerror(errno)));
    return fd;
}

/* The words: a port, a secret, and the key of a shared memory segment. Lives until it is killed. */
static enum verdict neighbour(const struct call *call)
{
    const char *secret = call->words[1];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(call->words[0]))};
    struct sockaddr_un hidden = {.sun_family = AF_UNIX};
    size_t length = strlen(secret);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (length + 2 > sizeof hidden.sun_path)
        return not_tried("the secret is too long");
    memcpy(hidden.sun_path + 1, secret, length);
    size_t size = offsetof(struct sockaddr_un, sun_path) + length + 1;
    struct pollfd doors[2] = {
        {.fd = listening((const struct sockaddr *)&address, sizeof address), .events = POLLIN, .revents = 0},
        {.fd = listening((const struct sockaddr *)&hidden, (socklen_t)size), .events = POLLIN, .revents = 0},
    };
    if (shmget((key_t)number(call->words[2]), 4096, IPC_CREAT | 0666) < 0)
        return not_tried("shmget: %s", strerror(errno));
    (void)alarm(0);
    (void)puts("ready");
    (void)fflush(stdout);
    for (;;) {
        if (poll(doors, 2, -1) < 0)
            return not_tried("poll: %s", strerror(errno));
        for (int i = 0; i < 2; i++) {
            int guest = doors[i].revents != 0 ? accept(doors[i].fd, NULL, NULL) : -1;
            if (guest < 0)
                continue;
            (void)send(guest, secret, length, MSG_NOSIGNAL);
            (void)close(guest);
        }
    }
}

/* The words: seconds, and two paths that change places, again and again. */
static enum verdict swap(const struct call *call)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long times = 0;
    (void)puts("ready");
    (void)fflush(stdout);
    while (seconds_now() < until)
        if (syscall(SYS_renameat2, AT_FDCWD, call->words[1], AT_FDCWD, call->words[2], EXCHANGE) == 0)
            times++;
    (void)printf("%ld\n", times);
    return REFUSED;
}

const struct attempt helpers[] = {
    {"neighbour", neighbour, NULL, 3, 0},
    {"swap", swap, NULL, 3, 0},
    {"tell-privileges", tell_privileges, NULL, 0, 0},
    {"allowance-hold", allowance_hold, NULL, 3, 0},
    {"allowance-use", allowance_use, NULL, 1, 0},
    {NULL, NULL, NULL, 0, 0},
};
