/* Namespaces: new ones bring capabilities and attack surface back; old ones lead out. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define GET_PARENT 0xb702
enum { NEW_TIME = 0x80, NEW_CGROUP = 0x02000000 };

static enum verdict by_unshare(const struct call *call)
{
    return judge(syscall(SYS_unshare, call->attempt->number), "unshare");
}

static enum verdict end_child(long pid, const char *what)
{
    int error = errno;
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        (void)waitpid((pid_t)pid, NULL, 0);
    errno = error;
    return judge(pid, what);
}

static enum verdict by_clone(const struct call *call)
{
    return end_child(syscall(SYS_clone, call->attempt->number | SIGCHLD, 0, 0, 0, 0), "clone");
}

/* The flag in the upper half of the register too: a filter that compares 64 bits where the kernel looks at 32. */
static enum verdict by_clone_wide(const struct call *call)
{
    unsigned long wide = call->attempt->number | 1UL << 32 | SIGCHLD;
    return end_child(syscall(SYS_clone, wide, 0, 0, 0, 0), "clone");
}

static enum verdict by_clone3(const struct call *call)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } how = {.flags = call->attempt->number, .exit_signal = SIGCHLD};
    return end_child(syscall(SYS_clone3, &how, sizeof how), "clone3");
}

static enum verdict into_cgroup(const struct call *call)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
        uint64_t set_tid, set_tid_size, cgroup;
    } how = {.flags = 0x200000000ULL, .exit_signal = SIGCHLD};
    (void)call;
    return end_child(syscall(SYS_clone3, &how, sizeof how), "clone3");
}

static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The text: of which process. */
static enum verdict join(const struct call *call)
{
    char path[64];
    for (size_t i = 0; i < KINDS; i++) {
        (void)snprintf(path, sizeof path, "/proc/%s/ns/%s", call->attempt->text, kinds[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (setns(fd, 0) == 0)
            return not_refused("joined %s", path);
        if (errno != EPERM && errno != ENOSYS)
            return not_refused("setns passed the filter: %s", strerror(errno));
        (void)close(fd);
    }
    return refused("%s", strerror(errno));
}

static enum verdict join_by_pidfd(const struct call *call)
{
    (void)call;
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (fd < 0)
        return refused("pidfd_open: %s", strerror(errno));
    return judge(setns(fd, CLONE_NEWNS | CLONE_NEWPID), "setns");
}

/* The namespace that this one was made in, by asking the kernel for it. */
static enum verdict parent(const struct call *call)
{
    static const char *const own[] = {"/proc/self/ns/user", "/proc/self/ns/pid"};
    (void)call;
    for (size_t i = 0; i < 2; i++) {
        int fd = open(own[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && ioctl(fd, GET_PARENT) >= 0)
            return not_refused("got the parent of %s", own[i]);
    }
    return refused("NS_GET_PARENT: %s", strerror(errno));
}

/* Without a user namespace of its own the sandbox's root would be the host's. */
static enum verdict own_users(const struct call *call)
{
    char buffer[512] = "";
    unsigned long inside, outside, count;
    (void)call;
    long got = read_some("/proc/self/uid_map", buffer, sizeof buffer - 1);
    if (got <= 0 || sscanf(buffer, "%lu %lu %lu", &inside, &outside, &count) != 3)
        return not_tried("/proc/self/uid_map cannot be read");
    if (count == 4294967295UL)
        return not_refused("the ids are those of the host");
    return refused("%lu ids of its own, from %lu on", count, outside);
}

/* Ids that are not the sandbox's: the host's root is one of them. */
static enum verdict foreign_ids(const struct call *call)
{
    static const uid_t ids[] = {65536, 65537, 100000, 1000000, 0x70000000, 4294967294U};
    (void)call;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (syscall(SYS_setresuid, -1, ids[i], -1) == 0)
            return not_refused("became %u", (unsigned)ids[i]);
    return refused("setresuid: %s", strerror(errno));
}

static enum verdict map_write(const struct call *call)
{
    (void)call;
    int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return refused("/proc/self/uid_map: %s", strerror(errno));
    return judge(write(fd, "0 0 4294967295", 14), "writing /proc/self/uid_map");
}

const struct attempt namespace_attempts[] = {
    {"namespace-new-user", by_unshare, NULL, 0, CLONE_NEWUSER},
    {"namespace-new-user-clone", by_clone, NULL, 0, CLONE_NEWUSER},
    {"namespace-new-user-clone-wide", by_clone_wide, NULL, 0, CLONE_NEWUSER},
    {"namespace-new-user-clone3", by_clone3, NULL, 0, CLONE_NEWUSER},
    {"namespace-new-user-and-mount", by_unshare, NULL, 0, CLONE_NEWUSER | CLONE_NEWNS},
    {"namespace-new-mount", by_unshare, NULL, 0, CLONE_NEWNS},
    {"namespace-new-network", by_unshare, NULL, 0, CLONE_NEWNET},
    {"namespace-new-pid", by_unshare, NULL, 0, CLONE_NEWPID},
    {"namespace-new-ipc", by_unshare, NULL, 0, CLONE_NEWIPC},
    {"namespace-new-uts", by_unshare, NULL, 0, CLONE_NEWUTS},
    {"namespace-new-cgroup", by_unshare, NULL, 0, NEW_CGROUP},
    {"namespace-new-time", by_unshare, NULL, 0, NEW_TIME},
    {"cgroup-clone-into", into_cgroup, NULL, 0, 0},
    {"namespace-join-agent", join, "1", 0, 0},
    {"namespace-join-own", join, "self", 0, 0},
    {"namespace-join-pidfd", join_by_pidfd, NULL, 0, 0},
    {"namespace-parent", parent, NULL, 0, 0},
    {"users-own", own_users, NULL, 0, 0},
    {"users-foreign-ids", foreign_ids, NULL, 0, 0},
    {"users-map-write", map_write, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
