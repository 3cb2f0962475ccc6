/* What a process may become, and what it was given without asking. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

/* chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service, setfcap: for package managers. */
#define OWN_CAPABILITIES 0x800004fbULL

static unsigned long long status_field(const char *name, int base)
{
    static char buffer[16384];
    long got = read_some("/proc/self/status", buffer, sizeof buffer - 1);
    if (got <= 0)
        exit(not_tried("/proc/self/status: %s", strerror(errno)));
    buffer[got] = '\0';
    const char *found = strstr(buffer, name);
    if (found == NULL)
        exit(not_tried("/proc/self/status has no %s", name));
    return strtoull(found + strlen(name), NULL, base);
}

static enum verdict capabilities(const struct call *call)
{
    unsigned long long held = status_field("CapEff:", 16) | status_field("CapPrm:", 16) | status_field("CapAmb:", 16);
    unsigned long long most = status_field("CapBnd:", 16);
    (void)call;
    if ((held & ~OWN_CAPABILITIES) != 0 || (getuid() != 0 && held != 0))
        return not_refused("it holds %llx", held);
    if ((most & ~OWN_CAPABILITIES) != 0)
        return not_refused("it could get %llx", most & ~OWN_CAPABILITIES);
    return refused("it holds %llx of its own user namespace, nothing of the host", held);
}

static enum verdict capability_raise(const struct call *call)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct all[2] = {{~0U, ~0U, ~0U}, {~0U, ~0U, ~0U}};
    (void)call;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) == 0)
        return not_refused("raised an ambient capability");
    return judge(syscall(SYS_capset, &head, all), "capset");
}

static enum verdict no_new_privileges(const struct call *call)
{
    (void)call;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return not_refused("a program could get more privileges than its caller has");
    return refused("setuid bits and file capabilities give nothing");
}

static enum verdict filter_active(const struct call *call)
{
    (void)call;
    if (status_field("\nSeccomp:", 10) != 2)
        return not_refused("there is no system call filter");
    return refused("%llu filters", status_field("Seccomp_filters:", 10));
}

static enum verdict filter_suspend(const struct call *call)
{
    (void)call;
    pid_t pid = fork();
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    if (pid < 0)
        return not_tried("fork: %s", strerror(errno));
    long result = ptrace(PTRACE_SEIZE, pid, NULL, (void *)(1UL << 21)); /* PTRACE_O_SUSPEND_SECCOMP */
    int error = errno;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    errno = error;
    return judge_success(result, "suspending the filter of a traced process");
}

/* For the two that follow: what a program that was just started has. */
enum verdict tell_privileges(const struct call *call)
{
    (void)call;
    bool more = geteuid() != getuid() || (status_field("CapEff:", 16) & 1ULL << CAP_SYS_ADMIN) != 0;
    return more ? NOT_REFUSED : REFUSED;
}

static enum verdict gained_by(const char *path)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl(path, path, "run", "tell-privileges", (char *)NULL);
        _exit(REFUSED); /* not even started */
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return not_tried("%s did not run", path);
    if (WEXITSTATUS(status) != REFUSED)
        return not_refused("it runs with more privileges than its caller");
    return refused("it runs with the privileges of its caller");
}

/* The word: a copy of this program that belongs to root and has the setuid bit. */
static enum verdict setuid_program(const struct call *call)
{
    struct stat status;
    if (stat(call->words[0], &status) < 0 || status.st_uid != 0 || (status.st_mode & S_ISUID) == 0)
        return not_tried("%s is not a setuid program of root", call->words[0]);
    return gained_by(call->words[0]);
}

static bool copy_self(int to)
{
    static char buffer[65536];
    ssize_t got = -1;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    while (from >= 0 && (got = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)got) != got)
            return false;
    return got == 0;
}

static enum verdict file_capabilities(const struct call *call)
{
    static const uint32_t all[] = {0x02000001, ~0U, 0, ~0U, 0}; /* revision 2, effective */
    char path[] = "/tmp/probe-copy-XXXXXX";
    (void)call;
    int fd = mkstemp(path);
    if (fd < 0 || !copy_self(fd) || fchmod(fd, 0755) < 0)
        return not_tried("no copy of this program: %s", strerror(errno));
    (void)close(fd);
    if (setxattr(path, "security.capability", all, sizeof all, 0) < 0) {
        int error = errno;
        (void)unlink(path);
        return refused("setxattr: %s", strerror(error));
    }
    enum verdict verdict = gained_by(path);
    (void)unlink(path);
    return verdict;
}

static enum verdict become_root(const struct call *call)
{
    (void)call;
    if (syscall(SYS_setresgid, 0, 0, 0) == 0)
        return not_refused("became the group root");
    return judge_success(syscall(SYS_setresuid, 0, 0, 0), "setresuid");
}

/* The system call itself: C libraries disagree about the type of `kind`. */
static bool limit(int kind, const struct rlimit *wanted, struct rlimit *found)
{
    return syscall(SYS_prlimit64, 0, kind, wanted, found) == 0;
}

static enum verdict core_dump(const struct call *call)
{
    struct rlimit core;
    int status = 0;
    (void)call;
    if (!limit(RLIMIT_CORE, NULL, &core) || core.rlim_max > 1)
        return not_refused("cores of up to %llu bytes may be written", (unsigned long long)core.rlim_max);
    core.rlim_cur = core.rlim_max = 1 << 20;
    if (limit(RLIMIT_CORE, &core, NULL))
        return not_refused("the limit could be raised");
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        abort();
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return not_tried("fork: %s", strerror(errno));
    if (WCOREDUMP(status))
        return not_refused("a core was dumped");
    return refused("a crash leaves nothing, and calls nobody on the host");
}

static enum verdict limits_raise(const struct call *call)
{
    static const int kinds[] = {RLIMIT_NOFILE, RLIMIT_CORE};
    (void)call;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct rlimit found;
        if (!limit(kinds[i], NULL, &found) || found.rlim_max == RLIM_INFINITY)
            return not_refused("there is no limit of kind %d", kinds[i]);
        found.rlim_max += 1;
        if (limit(kinds[i], &found, NULL))
            return not_refused("the limit of kind %d could be raised", kinds[i]);
    }
    return refused("setrlimit: %s", strerror(errno));
}

/* The word: a secret that is in the environment of the server. */
static enum verdict server_environment(const struct call *call)
{
    const char *secret = turned(call->words[0]);
    size_t count = 0;
    for (; environ[count] != NULL; count++)
        if (strstr(environ[count], secret) != NULL)
            return not_refused("it was handed on");
    return refused("not among %zu variables", count);
}

static enum verdict inherited_descriptors(const struct call *call)
{
    (void)call;
    for (int fd = 3; fd < 65536; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return not_refused("descriptor %d was handed on", fd);
    for (int fd = 0; fd < 3; fd++)
        if (isatty(fd))
            return not_refused("descriptor %d is a terminal of somebody else", fd);
    return refused("only standard input, output and error");
}

static enum verdict null_page(const struct call *call)
{
    (void)call;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return judge_success(page == MAP_FAILED ? -1 : 0, "mapping address 0");
}

const struct attempt privilege_attempts[] = {
    {"capabilities", capabilities, NULL, 0, 0},
    {"capability-raise", capability_raise, NULL, 0, 0},
    {"no-new-privileges", no_new_privileges, NULL, 0, 0},
    {"filter-active", filter_active, NULL, 0, 0},
    {"filter-suspend", filter_suspend, NULL, 0, 0},
    {"setuid-program", setuid_program, NULL, 1, 0},
    {"file-capabilities", file_capabilities, NULL, 0, 0},
    {"become-root", become_root, NULL, 0, 0},
    {"core-dump", core_dump, NULL, 0, 0},
    {"limits-raise", limits_raise, NULL, 0, 0},
    {"server-environment", server_environment, NULL, 1, 0},
    {"inherited-descriptors", inherited_descriptors, NULL, 0, 0},
    {"null-page", null_page, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
