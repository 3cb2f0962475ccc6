/* Terminals: typing in another's name, and rarely used drivers behind them. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A new terminal that is this process's own, so that nothing but the filter stands in the way. */
static int own_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        exit(not_tried("no terminal: %s", strerror(errno)));
    (void)setsid();
    int fd = open(ptsname(master), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        exit(not_tried("no terminal: %s", strerror(errno)));
    (void)ioctl(fd, TIOCSCTTY, 0);
    return fd;
}

/* The number: the request. */
static enum verdict terminal_request(const struct call *call)
{
    static const char letter = 'x';
    long result = syscall(SYS_ioctl, own_terminal(), call->attempt->number, &letter);
    return judge_success(result, "ioctl");
}

static enum verdict line_discipline(const struct call *call)
{
    int discipline = (int)call->attempt->number;
    return judge(syscall(SYS_ioctl, own_terminal(), (unsigned long)TIOCSETD, &discipline), "TIOCSETD");
}

const struct attempt terminal_attempts[] = {
    {"terminal-typing", terminal_request, NULL, 0, TIOCSTI},
    {"terminal-typing-wide", terminal_request, NULL, 0, TIOCSTI | 1UL << 32},
    {"terminal-console", terminal_request, NULL, 0, TIOCLINUX},
    {"terminal-console-wide", terminal_request, NULL, 0, TIOCLINUX | 1UL << 32},
    {"terminal-line-discipline", line_discipline, NULL, 0, 13},
    {"terminal-line-discipline-gsm", line_discipline, NULL, 0, 21},
    {NULL, NULL, NULL, 0, 0},
};
