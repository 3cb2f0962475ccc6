#include "launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One datagram-like line per message; the control socket is a SEQPACKET pair. */
static void say(const char *line)
{
    (void)!send(CONTROL_FD, line, strlen(line), MSG_NOSIGNAL);
}

void tell(const char *word, uint64_t number)
{
    char line[64];
    (void)snprintf(line, sizeof line, "%s %llu", word, (unsigned long long)number);
    say(line);
}

void fail_with(int error, const char *step, const char *what)
{
    char line[512];
    (void)snprintf(line, sizeof line, "error %d %s %.300s: %s", error, step, what, strerror(error));
    say(line);
    _exit(1);
}

void fail(const char *step, const char *what)
{
    fail_with(errno, step, what);
}
