/* Processes of the host and of other sandboxes. */
#include "probe.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static bool is_it(long pid, const char *secret)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    return file_contains(path, secret);
}

/* The word: a secret in the command line of the process that must not be seen. */
static enum verdict process_listing(const struct call *call)
{
    const char *secret = turned(call->words[0]);
    DIR *folder = opendir("/proc");
    int seen = 0;
    if (folder == NULL)
        return refused("/proc: %s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        seen++;
        if (is_it(strtol(entry->d_name, NULL, 10), secret))
            return not_refused("process %s is the one", entry->d_name);
    }
    (void)closedir(folder);
    return refused("%d processes are seen, none of them it", seen);
}

/* Numbers that a listing may hide, tried one by one. */
static enum verdict process_guessing(const struct call *call)
{
    const char *secret = turned(call->words[1]);
    long around = number(call->words[0]);
    for (long pid = around > 200 ? around - 200 : 1; pid < around + 200; pid++)
        if (kill((pid_t)pid, 0) == 0 && is_it(pid, secret))
            return not_refused("process %ld is the one", pid);
    return refused("none of 400 numbers around %ld is it", around);
}

static enum verdict process_signal(const struct call *call)
{
    long pid = number(call->words[0]);
    if (kill((pid_t)pid, 0) == 0 && is_it(pid, turned(call->words[1])))
        return not_refused("signals reach it");
    return refused("kill: %s", strerror(errno));
}

static enum verdict process_trace(const struct call *call)
{
    long pid = number(call->words[0]);
    if (!is_it(pid, turned(call->words[1])))
        return refused("there is no such process here");
    long result = ptrace(PTRACE_SEIZE, (pid_t)pid, NULL, NULL);
    int error = errno;
    if (result == 0)
        (void)ptrace(PTRACE_DETACH, (pid_t)pid, NULL, NULL);
    errno = error;
    return judge_success(result, "ptrace");
}

static enum verdict process_environment(const struct call *call)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/environ", number(call->words[0]));
    if (file_contains(path, turned(call->words[1])))
        return not_refused("read the secret in its environment");
    return refused("%s: %s", path, strerror(errno));
}

static enum verdict process_memory(const struct call *call)
{
    char path[64];
    long pid = number(call->words[0]);
    const char *secret = turned(call->words[1]);
    if (!is_it(pid, secret))
        return refused("there is no such process here");
    (void)snprintf(path, sizeof path, "/proc/%ld/mem", pid);
    return judge_success(open(path, O_RDONLY | O_CLOEXEC), path);
}

static enum verdict process_descriptor(const struct call *call)
{
    long pid = number(call->words[0]);
    if (!is_it(pid, turned(call->words[1])))
        return refused("there is no such process here");
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return refused("pidfd_open: %s", strerror(errno));
    return judge_success(syscall(SYS_pidfd_getfd, fd, 0, 0), "pidfd_getfd");
}

static enum verdict shared_memory(const struct call *call)
{
    int found = shmget((key_t)number(call->words[0]), 0, 0);
    if (found >= 0)
        return not_refused("the segment is there");
    return refused("shmget: %s", strerror(errno));
}

const struct attempt process_attempts[] = {
    {"host-process-listing", process_listing, NULL, 1, 0},
    {"host-process-guessing", process_guessing, NULL, 2, 0},
    {"host-process-signal", process_signal, NULL, 2, 0},
    {"host-process-trace", process_trace, NULL, 2, 0},
    {"host-process-memory", process_memory, NULL, 2, 0},
    {"host-process-environment", process_environment, NULL, 2, 0},
    {"host-process-descriptor", process_descriptor, NULL, 2, 0},
    {"host-shared-memory", shared_memory, NULL, 1, 0},
    {"other-sandbox-process", process_listing, NULL, 1, 0},
    {"other-sandbox-shared-memory", shared_memory, NULL, 1, 0},
    {NULL, NULL, NULL, 0, 0},
};
