#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Never above what this process has itself: raising a limit is a privilege. */
void limit(struct plan *plan)
{
    unsigned int which = (unsigned int)plan_number(plan);
    rlim_t soft = (rlim_t)plan_number(plan);
    rlim_t hard = (rlim_t)plan_number(plan);
    struct rlimit now;
    if (getrlimit((int)which, &now) < 0)
        fail("limit", "read");
    if (now.rlim_max != RLIM_INFINITY && hard > now.rlim_max)
        hard = now.rlim_max;
    if (soft > hard)
        soft = hard;
    struct rlimit wanted = {.rlim_cur = soft, .rlim_max = hard};
    if (setrlimit((int)which, &wanted) < 0)
        fail("limit", "write");
}

/* allowance NAME NUMBER: how much of a thing that is counted by user namespace this one may have. */
void allowance(struct plan *plan)
{
    char path[128];
    const char *name = plan_word(plan);
    const char *number = plan_word(plan);
    if (strchr(name, '/') != NULL || strlen(name) > 64)
        fail_with(EINVAL, "allowance", name);
    (void)snprintf(path, sizeof path, "/proc/sys/user/%s", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, number, strlen(number)) != (ssize_t)strlen(number))
        fail("allowance", name);
    (void)close(fd);
}

/* nice NUMBER: how far everything in here stands behind others, where there is no control group to say so. */
void nice_all(struct plan *plan)
{
    if (setpriority(PRIO_PROCESS, 0, (int)plan_number(plan)) < 0)
        fail("nice", "setpriority");
}
