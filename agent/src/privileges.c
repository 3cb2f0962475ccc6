#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "identity.h"
#include "text.h"

enum { MAX_INSTRUCTIONS = 4096 };

#define BIT(capability) ((uint64_t)1 << (capability))

/* What the sandbox's root has; nobody inside ever gets more. */
static const uint64_t kept = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_SETGID) |
                             BIT(CAP_SETUID) | BIT(CAP_KILL) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SETFCAP);
/* What the agent uses itself. */
static const uint64_t used = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_SETGID) | BIT(CAP_SETUID) |
                             BIT(CAP_KILL) | BIT(CAP_NET_BIND_SERVICE);
/* The ones that a file operation could lean on. */
static const uint64_t over_files = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) |
                                   BIT(CAP_SETUID) | BIT(CAP_SETGID);

static struct sock_fprog agent_filter, child_filter;

static bool capabilities_set(uint64_t effective, uint64_t permitted) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)effective, (uint32_t)permitted, 0},
        {(uint32_t)(effective >> 32), (uint32_t)(permitted >> 32), 0},
    };
    return syscall(SYS_capset, &head, data) == 0;
}

bool capabilities_lower(void) { return capabilities_set(used & ~over_files, kept); }
bool capabilities_raise(void) { return capabilities_set(used, kept); }
bool capabilities_clear(void) { return capabilities_set(0, 0); }

bool bounding_set_limit(void) {
    for (unsigned capability = 0; capability < 64; capability++) {
        if (kept & BIT(capability)) continue;
        int there = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (there < 0) return true; /* past the last one */
        if (there == 0) continue;   /* a container engine took it already, and with it the right to drop any */
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) return false;
    }
    return true;
}

bool privileges_drop(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return false;
    if (mode == MODE_PLAIN) return true;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* Nobody inside may trace the agent or open its descriptors; a program it starts is traceable again by exec. */
    return bounding_set_limit() && capabilities_set(used, kept) && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

/* The helper's part: a namespace where the one id we have is called 1000. */
static void namespace_helper(int told) {
    char map[NAME_SIZE];
    put_text(put_number(map, USER_UID), " 0 1\n");
    bool done = unshare(CLONE_NEWUSER) == 0 && (write_file("/proc/self/setgroups", "deny"), true) &&
                write_file("/proc/self/uid_map", map) && write_file("/proc/self/gid_map", map);
    int error = done ? 0 : errno ? errno : EPERM;
    if (write(told, &error, sizeof error) != sizeof error) _exit(1);
    for (;;) pause();
}

bool user_namespace_make(void) {
    int ends[2], error = EPERM;
    if (pipe2(ends, O_CLOEXEC) < 0) return false;
    pid_t helper = fork();
    if (helper < 0) return false;
    if (helper == 0) namespace_helper(ends[1]);
    close(ends[1]);
    if (read(ends[0], &error, sizeof error) != sizeof error) error = EPERM;
    close(ends[0]);
    if (!error) {
        char path[NAME_SIZE];
        put_text(put_number(put_text(path, "/proc/"), (uint64_t)helper), "/ns/user");
        user_namespace = open(path, O_RDONLY | O_CLOEXEC);
        if (user_namespace < 0) error = errno;
    }
    kill(helper, SIGKILL);
    waitpid(helper, NULL, 0);
    errno = error;
    return !error;
}

static bool read_all(int fd, void *into, size_t length) {
    uint8_t *at = into;
    while (length) {
        ssize_t got = read(fd, at, length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = EINVAL;
            return false;
        }
        at += got;
        length -= (size_t)got;
    }
    return true;
}

static bool read_filter(int fd, struct sock_fprog *program) {
    uint32_t count;
    if (!read_all(fd, &count, sizeof count)) return false;
    if (count > MAX_INSTRUCTIONS) {
        errno = EINVAL;
        return false;
    }
    if (!count) return true;
    program->filter = malloc(count * sizeof *program->filter);
    if (!program->filter || !read_all(fd, program->filter, count * sizeof *program->filter)) return false;
    program->len = (unsigned short)count;
    return true;
}

bool filters_read(int fd) { return read_filter(fd, &agent_filter) && read_filter(fd, &child_filter); }

static bool install(const struct sock_fprog *program) {
    return !program->len || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0;
}

bool agent_filter_install(void) {
    bool done = install(&agent_filter);
    free(agent_filter.filter);
    agent_filter = (struct sock_fprog){0};
    return done;
}

bool child_filter_install(void) { return install(&child_filter); }
