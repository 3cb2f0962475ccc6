/* Parts of the kernel with a long list of holes, and its keys. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif
#ifndef SYS_kexec_file_load
#define SYS_kexec_file_load 294
#endif
enum { SESSION_KEYRING = -3, USER_KEYRING = -4, USER_SESSION_KEYRING = -5 };
enum { KEY_SEARCH = 10, KEY_JOIN_SESSION = 1, KEY_READ = 11, KEY_GET_ID = 0, KEY_PERSISTENT = 22 };

/* Two of a kind that only look for a permission: what they are given can never be loaded. */
static enum verdict module_load(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_init_module, "not a module", 12UL, ""), "init_module");
}

static enum verdict module_load_file(const struct call *call)
{
    (void)call;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    return judge(syscall(SYS_finit_module, fd, "", 0), "finit_module");
}

static enum verdict module_remove(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_delete_module, "paddock_no_such_module", O_NONBLOCK), "delete_module");
}

static enum verdict kexec_load(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_kexec_load, 0UL, 17UL, NULL, 1UL << 20), "kexec_load"); /* flags that do not exist */
}

static enum verdict kexec_file(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_kexec_file_load, -1, -1, 0UL, NULL, 1UL << 20), "kexec_file_load");
}

/* Only whether Ctrl-Alt-Del restarts at once; sandboxes have no keyboard. */
static enum verdict reboot_call(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL), "reboot");
}

static enum verdict bpf_program(const struct call *call)
{
    static const uint64_t instructions[] = {0x00000000000000b7ULL, 0x0000000000000095ULL}; /* return 0 */
    struct {
        uint32_t type, count;
        uint64_t instructions, license;
        uint32_t level, size;
        uint64_t log;
        uint32_t version, flags;
        char name[16];
    } program = {.type = 1, .count = 2};
    program.instructions = (uint64_t)(uintptr_t)instructions;
    program.license = (uint64_t)(uintptr_t)"GPL";
    (void)call;
    return judge(syscall(SYS_bpf, 5, &program, sizeof program), "bpf");
}

static enum verdict bpf_map(const struct call *call)
{
    struct {
        uint32_t type, key, value, entries, flags;
    } map = {.type = 2, .key = 4, .value = 4, .entries = 1, .flags = 0};
    (void)call;
    return judge(syscall(SYS_bpf, 0, &map, sizeof map), "bpf");
}

static enum verdict perf(const struct call *call)
{
    unsigned char attributes[128] = {0};
    attributes[0] = 1; /* a software event */
    attributes[4] = sizeof attributes;
    (void)call;
    return judge(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0UL), "perf_event_open");
}

static enum verdict user_faults(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_userfaultfd, O_CLOEXEC | 1), "userfaultfd");
}

static enum verdict io_uring(const struct call *call)
{
    char parameters[120] = {0};
    (void)call;
    return judge(syscall(SYS_io_uring_setup, 1, parameters), "io_uring_setup");
}

static enum verdict kernel_aio(const struct call *call)
{
    unsigned long context = 0;
    (void)call;
    return judge(syscall(SYS_io_setup, 1, &context), "io_setup");
}

static enum verdict handle_make(const struct call *call)
{
    struct {
        unsigned size;
        int type;
        unsigned char bytes[128];
    } handle = {.size = 128};
    int mount;
    (void)call;
    return judge(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount, 0), "name_to_handle_at");
}

static enum verdict fanotify(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_fanotify_init, 0x200, O_RDONLY), "fanotify_init"); /* the kind that needs no privilege */
}

static enum verdict key_add(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_add_key, "paddock-no-such-type", "probe", "x", 1UL, USER_KEYRING), "add_key");
}

static enum verdict key_session(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_keyctl, KEY_JOIN_SESSION, NULL, 0, 0, 0), "keyctl");
}

static enum verdict key_request(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_request_key, "user", "paddock-no-such-key", NULL, 0), "request_key");
}

/* The words: the description of a key that the host has, and its number. */
static enum verdict key_of_host(const struct call *call)
{
    static const int rings[] = {SESSION_KEYRING, USER_KEYRING, USER_SESSION_KEYRING};
    const char *description = turned(call->words[0]);
    char buffer[64];
    for (size_t i = 0; i < 3; i++)
        if (syscall(SYS_keyctl, KEY_SEARCH, rings[i], "user", description, 0) >= 0)
            return not_refused("found it in ring %d", rings[i]);
    if (syscall(SYS_keyctl, KEY_READ, number(call->words[1]), buffer, sizeof buffer, 0) >= 0)
        return not_refused("read it by its number");
    return refused("keyctl: %s", strerror(errno));
}

/* The same number means another call under the 32-bit convention. A filter that forgets this is no filter. */
static enum verdict foreign_calls(const struct call *call)
{
    (void)call;
#if defined(__x86_64__)
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory"); /* getpid */
        _exit(result > 0 ? 1 : 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return not_tried("fork: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        return not_refused("a 32-bit call was answered");
    if (syscall(0x40000000L | SYS_getpid) > 0)
        return not_refused("an x32 call was answered");
    return refused("32-bit calls end the process, x32: %s", strerror(errno));
#else
    return not_tried("this architecture has no second calling convention here");
#endif
}

/* A tracer changes a permitted call into a forbidden one, after the filter has looked at it. */
static enum verdict changed_call(const struct call *call)
{
    (void)call;
#if defined(__x86_64__)
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)raise(SIGSTOP);
        _exit(syscall(SYS_getppid) == 0 ? 1 : 0); /* unshare answers 0, getppid never does */
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return not_tried("no process to trace");
    for (int i = 0; i < 64; i++) {
        struct user_regs_struct registers;
        if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) < 0 || waitpid(pid, &status, 0) != pid || WIFEXITED(status))
            break;
        if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) == 0 && registers.orig_rax == SYS_getppid) {
            registers.orig_rax = SYS_unshare;
            registers.rdi = 0x10000000; /* CLONE_NEWUSER */
            (void)ptrace(PTRACE_SETREGS, pid, NULL, &registers);
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        return not_refused("the changed call was carried out");
    return refused("the filter looks again after the tracer");
#else
    return not_tried("written for x86-64");
#endif
}

const struct attempt kernel_attempts[] = {
    {"module-load", module_load, NULL, 0, 0},
    {"module-load-file", module_load_file, NULL, 0, 0},
    {"module-remove", module_remove, NULL, 0, 0},
    {"kexec-load", kexec_load, NULL, 0, 0},
    {"kexec-file", kexec_file, NULL, 0, 0},
    {"reboot", reboot_call, NULL, 0, 0},
    {"bpf-program", bpf_program, NULL, 0, 0},
    {"bpf-map", bpf_map, NULL, 0, 0},
    {"perf-events", perf, NULL, 0, 0},
    {"user-faults", user_faults, NULL, 0, 0},
    {"io-uring", io_uring, NULL, 0, 0},
    {"kernel-aio", kernel_aio, NULL, 0, 0},
    {"file-handle", handle_make, NULL, 0, 0},
    {"fanotify", fanotify, NULL, 0, 0},
    {"keyring-add", key_add, NULL, 0, 0},
    {"keyring-session", key_session, NULL, 0, 0},
    {"keyring-request", key_request, NULL, 0, 0},
    {"keyring-host-key", key_of_host, NULL, 2, 0},
    {"filter-foreign-calls", foreign_calls, NULL, 0, 0},
    {"filter-changed-call", changed_call, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
