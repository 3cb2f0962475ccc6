/* The agent: the first process of the sandbox, which acts for the server. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

enum { IO_OF_PROCESS = 1, IO_OF_GROUP, IO_OF_USER, LAST_SIGNAL = 64 };

#define FOLDER "/run/paddock"

/* Where it is among what a container far away is given, if not where it usually is. */
static const char *program(void)
{
    static const char *const usual = FOLDER "/agent";
    return access(usual, F_OK) == 0 ? usual : FOLDER "/bin/paddock-agent";
}

static enum verdict agent_trace(const struct call *call)
{
    (void)call;
    if (ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0)
        return not_refused("PTRACE_SEIZE succeeded");
    return judge_success(ptrace(PTRACE_ATTACH, 1, NULL, NULL), "PTRACE_ATTACH");
}

static enum verdict agent_memory_file(const struct call *call)
{
    (void)call;
    if (open("/proc/1/mem", O_RDWR | O_CLOEXEC) >= 0)
        return not_refused("opened /proc/1/mem for writing");
    return judge_success(open("/proc/1/mem", O_RDONLY | O_CLOEXEC), "/proc/1/mem");
}

/* The address is nobody's: EFAULT would say that the kernel was ready to look. */
static enum verdict agent_memory_call(const struct call *call)
{
    char byte = 0;
    struct iovec here = {.iov_base = &byte, .iov_len = 1};
    struct iovec there = {.iov_base = (void *)4096, .iov_len = 1};
    (void)call;
    if (process_vm_readv(1, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT)
        return not_refused("process_vm_readv got through");
    return judge(process_vm_writev(1, &here, 1, &there, 1, 0), "process_vm_writev");
}

/* The text: files of /proc/1 that tell about its inside. */
static enum verdict agent_secrets(const struct call *call)
{
    char path[128];
    char word[64];
    char buffer[4096];
    const char *text = call->attempt->text;
    while (next_word(&text, word, sizeof word)) {
        (void)snprintf(path, sizeof path, "/proc/1/%s", word);
        long got = read_some(path, buffer, sizeof buffer);
        if (got > 0)
            return not_refused("read %ld bytes of %s", got, path);
    }
    return refused("%s", errno != 0 ? strerror(errno) : "empty");
}

static enum verdict agent_descriptors(const struct call *call)
{
    char path[64];
    (void)call;
    for (int number_of = 0; number_of < 1024; number_of++) {
        (void)snprintf(path, sizeof path, "/proc/1/fd/%d", number_of);
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 || errno == ENXIO) /* ENXIO: it is a socket, and the kernel was ready to follow the link */
            return not_refused("%s can be followed", path);
    }
    return refused("none of 1024 numbers can be opened");
}

static enum verdict agent_descriptor_steal(const struct call *call)
{
    (void)call;
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (fd < 0)
        return refused("pidfd_open: %s", strerror(errno));
    for (int number_of = 3; number_of < 64; number_of++)
        if (syscall(SYS_pidfd_getfd, fd, number_of, 0) >= 0)
            return not_refused("took descriptor %d", number_of);
    return refused("pidfd_getfd: %s", strerror(errno));
}

static enum verdict agent_compare(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), "kcmp");
}

static enum verdict agent_pages(const struct call *call)
{
    void *page = (void *)4096;
    int status = 0;
    (void)call;
    return judge(syscall(SYS_move_pages, 1, 1UL, &page, NULL, &status, 0), "move_pages");
}

static enum verdict agent_program_write(const struct call *call)
{
    const char *const paths[] = {program(), "/proc/1/exe", FOLDER "/bin/sudo", "/usr/bin/sudo"};
    struct stat wanted;
    struct stat found;
    (void)call;
    if (stat(program(), &wanted) < 0)
        return not_tried("%s: %s", program(), strerror(errno));
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (stat(paths[i], &found) < 0 || found.st_ino != wanted.st_ino || found.st_dev != wanted.st_dev)
            continue;
        if (open(paths[i], O_WRONLY | O_CLOEXEC) >= 0)
            return not_refused("opened %s for writing", paths[i]);
        if (truncate(paths[i], wanted.st_size) == 0 || chmod(paths[i], wanted.st_mode & 07777) == 0)
            return not_refused("changed %s", paths[i]);
    }
    char path[64];
    int fd = open(program(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return refused("%s: %s", program(), strerror(errno));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return judge_success(open(path, O_WRONLY | O_CLOEXEC), "opening its descriptor again for writing");
}

static enum verdict agent_program_replace(const struct call *call)
{
    char aside[64];
    (void)call;
    if (access(program(), F_OK) < 0)
        return not_tried("%s: %s", program(), strerror(errno));
    (void)snprintf(aside, sizeof aside, "%s.old", program());
    if (rename(program(), aside) == 0) {
        (void)rename(aside, program());
        return not_refused("renamed it");
    }
    return judge_success(rename(FOLDER, "/run/paddock.old"), "moving its folder away");
}

/* A process that has just become the agent's program, stopped at its first instruction; its exe link is followed for
 * writing, as in the break-outs that overwrite the program a container was started with. */
static enum verdict agent_program_through_exe(const struct call *call)
{
    char path[64];
    int status;
    (void)call;
    if (access(program(), X_OK) < 0)
        return not_tried("%s: %s", program(), strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)execl(program(), "sudo", "true", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return not_tried("the program could not be stopped at its start");
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    int fd = open(path, O_PATH | O_CLOEXEC);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    if (fd < 0)
        return refused("%s: %s", path, strerror(errno));
    /* Now that nobody runs it, it is no longer "text file busy". */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return judge_success(open(path, O_WRONLY | O_CLOEXEC), "writing through the exe link");
}

/* Every limit, set to what it is. */
static enum verdict agent_limits(const struct call *call)
{
    struct rlimit limit;
    (void)call;
    for (int which = 0; which < RLIM_NLIMITS; which++)
        if (syscall(SYS_prlimit64, 1, which, NULL, &limit) == 0 && syscall(SYS_prlimit64, 1, which, &limit, NULL) == 0)
            return not_refused("limit %d can be set", which);
    return judge(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &limit), "prlimit");
}

/* Every priority, set to what it is: by its number, by its group, by its user. */
static enum verdict agent_priority(const struct call *call)
{
    struct sched_param none = {.sched_priority = 0};
    struct {
        unsigned size, policy;
        unsigned long long flags;
        int nice;
        unsigned priority;
        unsigned long long runtime, deadline, period;
    } attributes = {.size = sizeof attributes};
    static const int who[][2] = {{PRIO_PROCESS, 1}, {PRIO_PGRP, 1}, {PRIO_USER, 0}};
    static const int io[][2] = {{IO_OF_PROCESS, 1}, {IO_OF_GROUP, 1}, {IO_OF_USER, 0}};
    (void)call;
    for (size_t i = 0; i < sizeof who / sizeof who[0]; i++)
        if (setpriority((unsigned)who[i][0], (id_t)who[i][1], getpriority(PRIO_PROCESS, 1)) == 0)
            return not_refused("setpriority(%d, %d)", who[i][0], who[i][1]);
    for (size_t i = 0; i < sizeof io / sizeof io[0]; i++)
        if (syscall(SYS_ioprio_set, io[i][0], io[i][1], syscall(SYS_ioprio_get, IO_OF_PROCESS, 1)) == 0)
            return not_refused("ioprio_set(%d, %d)", io[i][0], io[i][1]);
    /* Of the system itself: a C library may have no such functions, or ones that do nothing. */
    if (syscall(SYS_sched_setscheduler, 1, syscall(SYS_sched_getscheduler, 1), &none) == 0)
        return not_refused("sched_setscheduler");
    if (syscall(SYS_sched_setparam, 1, &none) == 0)
        return not_refused("sched_setparam");
    return judge(syscall(SYS_sched_setattr, 1, &attributes, 0), "sched_setattr");
}

static enum verdict agent_affinity(const struct call *call)
{
    unsigned long processors[128] = {0};
    (void)call;
    long size = syscall(SYS_sched_getaffinity, 1, sizeof processors, processors);
    if (size <= 0)
        return refused("sched_getaffinity: %s", strerror(errno));
    return judge(syscall(SYS_sched_setaffinity, 1, (size_t)size, processors), "sched_setaffinity");
}

/* The text: files of /proc/1 by which the process is changed. Opened for writing, and no more. */
static enum verdict agent_settings(const struct call *call)
{
    static const char *const places[] = {"/proc/1/", "/proc/1/task/1/"};
    char path[128];
    char word[64];
    int error = 0;
    const char *text = call->attempt->text;
    while (next_word(&text, word, sizeof word)) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            (void)snprintf(path, sizeof path, "%s%s", places[i], word);
            if (open(path, O_WRONLY | O_CLOEXEC) >= 0)
                return not_refused("opened %s for writing", path);
            if (errno != ENOENT)
                error = errno;
        }
    }
    return refused("%s", error != 0 ? strerror(error) : "there are no such files");
}

static enum verdict agent_memory_advice(const struct call *call)
{
    unsigned long nodes = 1;
    struct iovec there = {.iov_base = (void *)4096, .iov_len = 4096};
    (void)call;
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (fd >= 0 && (syscall(SYS_process_madvise, fd, &there, 1UL, 4 /* MADV_DONTNEED */, 0) >= 0 || errno == EFAULT))
        return not_refused("process_madvise got through");
    if (fd >= 0 && syscall(SYS_process_mrelease, fd, 0) == 0)
        return not_refused("process_mrelease got through");
    return judge(syscall(SYS_migrate_pages, 1, 1UL, &nodes, &nodes), "migrate_pages");
}

/* One signal by every call that sends one. */
static void signal_agent(int number_of, int pidfd)
{
    siginfo_t info = {.si_signo = number_of, .si_code = SI_QUEUE};
    (void)kill(1, number_of);
    (void)syscall(SYS_tkill, 1, number_of);
    (void)syscall(SYS_tgkill, 1, 1, number_of);
    (void)syscall(SYS_rt_sigqueueinfo, 1, number_of, &info);
    (void)syscall(SYS_rt_tgsigqueueinfo, 1, 1, number_of, &info);
    if (pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, pidfd, number_of, NULL, 0);
}

/* The kernel keeps signals from the first process of a namespace when they come from inside. */
static enum verdict agent_kill(const struct call *call)
{
    char buffer[256];
    (void)call;
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    for (int number_of = 1; number_of <= LAST_SIGNAL; number_of++)
        signal_agent(number_of, pidfd);
    for (int i = 0; i < 100; i++) {
        long got = read_some("/proc/1/stat", buffer, sizeof buffer - 1);
        buffer[got > 0 ? got : 0] = '\0';
        const char *state = strrchr(buffer, ')');
        if (state == NULL || strchr("TtZX", state[2]) != NULL)
            return not_refused("it is gone or stopped");
        (void)poll(NULL, 0, 1);
    }
    return refused("it goes on");
}

static int unix_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* The word: where its socket is on the host. */
static enum verdict agent_socket(const struct call *call)
{
    return judge_success(unix_connect(call->words[0]), "connect");
}

/* Every socket in its folder is asked to speak the server's language. */
static enum verdict agent_inner_sockets(const struct call *call)
{
    static const unsigned char hello[] = {8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
    int tried = 0;
    (void)call;
    DIR *folder = opendir(FOLDER);
    if (folder == NULL)
        return refused(FOLDER ": %s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[512];
        unsigned char answer[64];
        (void)snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        int fd = unix_connect(path);
        if (fd < 0)
            continue;
        tried++;
        struct pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
        if (write(fd, hello, sizeof hello) == (ssize_t)sizeof hello && poll(&wait, 1, 1000) == 1 &&
            read(fd, answer, sizeof answer) > 4 && answer[4] == 0x81)
            return not_refused("%s speaks the server's language", path);
        (void)close(fd);
    }
    (void)closedir(folder);
    return refused("%d sockets there, none says hello", tried);
}

const struct attempt agent_attempts[] = {
    {"agent-trace", agent_trace, NULL, 0, 0},
    {"agent-memory-file", agent_memory_file, NULL, 0, 0},
    {"agent-memory-call", agent_memory_call, NULL, 0, 0},
    {"agent-memory-layout", agent_secrets, "maps smaps auxv stack syscall", 0, 0},
    {"agent-environment", agent_secrets, "environ", 0, 0},
    {"agent-descriptors", agent_descriptors, NULL, 0, 0},
    {"agent-descriptor-steal", agent_descriptor_steal, NULL, 0, 0},
    {"agent-compare", agent_compare, NULL, 0, 0},
    {"agent-pages", agent_pages, NULL, 0, 0},
    {"agent-program-write", agent_program_write, NULL, 0, 0},
    {"agent-program-replace", agent_program_replace, NULL, 0, 0},
    {"agent-program-through-exe", agent_program_through_exe, NULL, 0, 0},
    {"agent-kill", agent_kill, NULL, 0, 0},
    {"agent-limits", agent_limits, NULL, 0, 0},
    {"agent-priority", agent_priority, NULL, 0, 0},
    {"agent-affinity", agent_affinity, NULL, 0, 0},
    {"agent-oom-score", agent_settings, "oom_score_adj oom_adj", 0, 0},
    {"agent-settings", agent_settings,
     "autogroup clear_refs comm coredump_filter gid_map loginuid projid_map reset_state sched setgroups timens_offsets "
     "timerslack_ns uid_map",
     0, 0},
    {"agent-memory-advice", agent_memory_advice, NULL, 0, 0},
    {"agent-socket", agent_socket, NULL, 1, 0},
    {"agent-inner-sockets", agent_inner_sockets, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
