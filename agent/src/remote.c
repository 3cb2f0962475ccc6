#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "directory.h"
#include "identity.h"
#include "text.h"

enum { BACKLOG = 128 };

static int listen_everywhere(uint16_t port) {
    /* Where the vendor's proxy comes from is not known: the token is what keeps others out. */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0) {
        return fd;
    }
    if (errno == EADDRINUSE) exit(EXIT_TAKEN);
    return -1;
}

/* Leaves in the background a session of our own; the foreground waits for its word. */
static bool go_behind(int *ready) {
    int ends[2];
    char word;
    if (pipe2(ends, O_CLOEXEC) < 0) return false;
    pid_t child = fork();
    if (child < 0) return false;
    if (child) {
        close(ends[1]);
        ssize_t got;
        while ((got = read(ends[0], &word, 1)) < 0 && errno == EINTR) continue;
        _exit(got == 1 ? 0 : 1);
    }
    close(ends[0]);
    *ready = ends[1];
    return setsid() >= 0;
}

bool remote_prepare(const char *port, const char *state, const char *token, struct remote *remote) {
    uint64_t number;
    if (!take_number(&port, &number) || *port || !number || number > 65535) {
        errno = EINVAL;
        return false;
    }
    close_from(3);
    *remote = (struct remote){.token = token};
    if (mkdir(state, 0700) < 0 && errno != EEXIST) return false;
    remote->state = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (remote->state < 0) return false;
    if ((remote->listen = listen_everywhere((uint16_t)number)) < 0) return false;
    if (!go_behind(&remote->ready)) return false;
    /* What processes leave behind is ours to wait for, as it would be if we were the first. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (mode == MODE_RANGE) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return chdir("/") == 0;
}

void remote_ready(struct remote *remote) {
    while (write(remote->ready, "", 1) < 0 && errno == EINTR) continue;
    close(remote->ready);
}

bool remote_has_users(void) {
    struct identity user;
    if (geteuid() != 0 || identity_resolve("1000", &user) != 0 || identity_enter(&user) != 0) return false;
    identity_leave(&user);
    return true;
}
