/* What belongs to the host as a whole: clock, name, swap, priorities, processor. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

/* To the time that it shows. */
static enum verdict clock_set(const struct call *call)
{
    struct timespec now;
    (void)call;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return judge(clock_settime(CLOCK_REALTIME, &now), "clock_settime");
}

static enum verdict clock_adjust(const struct call *call)
{
    struct timex change = {.modes = ADJ_TICK, .tick = 10000}; /* which is the default */
    (void)call;
    return judge(syscall(SYS_adjtimex, &change), "adjtimex");
}

static enum verdict time_zone(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_settimeofday, NULL, NULL), "settimeofday");
}

static enum verdict host_name_set(const struct call *call)
{
    char name[256] = "";
    (void)call;
    (void)gethostname(name, sizeof name - 1);
    return judge(syscall(SYS_sethostname, name, strlen(name)), "sethostname");
}

static enum verdict domain_name_set(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_setdomainname, "(none)", 6UL), "setdomainname");
}

static enum verdict swap_on(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_swapon, "/paddock-no-such-file", 0), "swapon");
}

static enum verdict swap_off(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_swapoff, "/paddock-no-such-file"), "swapoff");
}

static enum verdict accounting(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_acct, "/paddock-no-such-file"), "acct");
}

static enum verdict quota(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_quotactl, 0x80000300, "/paddock-no-such-device", 0, NULL), "quotactl"); /* quota off */
}

static enum verdict kernel_log(const struct call *call)
{
    char buffer[256];
    (void)call;
    return judge(syscall(SYS_syslog, 3, buffer, (int)sizeof buffer), "syslog");
}

static enum verdict terminal_hang_up(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_vhangup), "vhangup");
}

static enum verdict io_ports(const struct call *call)
{
    (void)call;
#if defined(__x86_64__)
    if (syscall(SYS_ioperm, 0x80UL, 1UL, 1) == 0)
        return not_refused("ioperm succeeded");
    return judge(syscall(SYS_iopl, 3), "iopl");
#else
    return not_tried("this processor has no ports");
#endif
}

static enum verdict segments(const struct call *call)
{
    (void)call;
#if defined(__x86_64__)
    char buffer[64];
    return judge(syscall(SYS_modify_ldt, 0, buffer, sizeof buffer), "modify_ldt");
#else
    return not_tried("this processor has no segments");
#endif
}

static enum verdict executable_data(const struct call *call)
{
    (void)call;
    return judge(personality(READ_IMPLIES_EXEC), "personality");
}

static enum verdict real_time(const struct call *call)
{
    struct sched_param parameter = {.sched_priority = 1};
    (void)call;
    /* The system call itself: one C library's function for it always says that it does not exist. */
    return judge(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameter), "sched_setscheduler");
}

static enum verdict priority(const struct call *call)
{
    (void)call;
    return judge(setpriority(PRIO_PROCESS, 0, -10), "setpriority");
}

static enum verdict io_priority(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_ioprio_set, 1, 0, 1 << 13), "ioprio_set"); /* real time */
}

static enum verdict oom_immunity(const struct call *call)
{
    (void)call;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return refused("oom_score_adj: %s", strerror(errno));
    return judge(write(fd, "-1000", 5), "oom_score_adj");
}

const struct attempt machine_attempts[] = {
    {"clock-set", clock_set, NULL, 0, 0},
    {"clock-adjust", clock_adjust, NULL, 0, 0},
    {"clock-zone", time_zone, NULL, 0, 0},
    {"host-name-set", host_name_set, NULL, 0, 0},
    {"host-domain-set", domain_name_set, NULL, 0, 0},
    {"swap-on", swap_on, NULL, 0, 0},
    {"swap-off", swap_off, NULL, 0, 0},
    {"accounting", accounting, NULL, 0, 0},
    {"disk-quota", quota, NULL, 0, 0},
    {"kernel-log-call", kernel_log, NULL, 0, 0},
    {"terminal-hang-up", terminal_hang_up, NULL, 0, 0},
    {"io-ports", io_ports, NULL, 0, 0},
    {"processor-segments", segments, NULL, 0, 0},
    {"executable-data", executable_data, NULL, 0, 0},
    {"priority-real-time", real_time, NULL, 0, 0},
    {"priority-raise", priority, NULL, 0, 0},
    {"priority-disk", io_priority, NULL, 0, 0},
    {"oom-immunity", oom_immunity, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
