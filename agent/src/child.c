#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "directory.h"
#include "privileges.h"
#include "shortcut.h"
#include "text.h"

enum { EXIT_NOT_FOUND = 127, EXIT_NOT_EXECUTABLE = 126, PATH_SIZE = 4096, OOM_SCORE = 500, FILLED = 6, LONGEST_WORD = 128 * 1024 };

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static struct rlimit open_files;
static bool raise_oom_score;

void child_defaults(void) {
    int64_t score;
    raise_oom_score = read_number_file("/proc/self/oom_score_adj", &score) && score < OOM_SCORE;
    struct rlimit core = {1, 1};
    /* 1 and not 0: with a piped core_pattern the kernel starts the host's crash handler at 0, and never at 1. */
    setrlimit(RLIMIT_CORE, &core);
    if (getrlimit(RLIMIT_NOFILE, &open_files) < 0) return;
    struct rlimit most = {open_files.rlim_max, open_files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
}

_Noreturn static void give_up(const struct launch *launch, int stage) {
    struct launch_failure failure = {stage, errno};
    if (write(launch->report, &failure, sizeof failure) < 0) _exit(EXIT_NOT_EXECUTABLE);
    _exit(EXIT_NOT_FOUND);
}

const char *launch_failure_text(const struct launch_failure *failure) {
    switch (failure->stage) {
        case STAGE_IDENTITY: return "the process could not become this user";
        case STAGE_DIRECTORY: return "the working directory cannot be entered";
        case STAGE_FILTER: return "the system call filter could not be installed";
        case STAGE_PROGRAM:
            if (failure->error == ENOENT) return "the program was not found";
            return failure->error == EACCES ? "the program may not be executed" : "the program cannot be executed";
        default: return failure->error == E2BIG ? "the command is too long" : "the command could not be started";
    }
}

static void reset_signals(void) {
    /* Asked of the kernel itself, for the C library keeps two signals to itself; all zeros is the default to it. */
    static const unsigned long standard[8];
    sigset_t none;
    for (int number = 1; number <= 64; number++) syscall(SYS_rt_sigaction, number, standard, NULL, 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static char *variable(const char *name, const char *value) {
    char *text = malloc(strlen(name) + strlen(value) + 2);
    if (!text) _exit(EXIT_NOT_EXECUTABLE);
    put_text(put_text(put_text(text, name), "="), value);
    return text;
}

/* PATH with each entry that begins with "~/" below that home: who sets it does not know whose program it will be. */
static char *expanded_path(const char *path, const char *home) {
    size_t room = sizeof "PATH=" + strlen(path);
    for (const char *at = path; (at = strchr(at, '~')); at++) room += strlen(home);
    char *text = malloc(room), *to = text;
    if (!text) _exit(EXIT_NOT_EXECUTABLE);
    to = put_text(to, "PATH=");
    for (const char *at = path; *at; at++) {
        bool begins = at == path || at[-1] == ':';
        if (begins && starts_with(at, "~/")) to = put_text(to, home);
        else *to++ = *at;
    }
    *to = 0;
    return text;
}

/* The environment as it was given, and after it what every program may expect. */
static char **complete_environment(const struct launch *launch) {
    const struct account *account = &launch->identity->account;
    const char *filled[FILLED][2] = {
        {"PATH", DEFAULT_PATH}, {"HOME", account->home}, {"USER", account->name}, {"LOGNAME", account->name},
        {"SHELL", *account->shell ? account->shell : "/bin/sh"}, {"TERM", launch->terminal ? "xterm-256color" : NULL},
    };
    size_t count = 0;
    while (launch->env[count]) count++;
    char **env = calloc(count + FILLED + 1, sizeof *env);
    if (!env) _exit(EXIT_NOT_EXECUTABLE);
    memcpy(env, launch->env, count * sizeof *env);
    for (size_t i = 0; i < count; i++) {
        if (starts_with(env[i], "PATH=") && strstr(env[i], "~/")) env[i] = expanded_path(env[i] + sizeof "PATH", account->home);
    }
    for (int i = 0; i < FILLED; i++) {
        if (filled[i][1] && !env_value(launch->env, filled[i][0])) env[count++] = variable(filled[i][0], filled[i][1]);
    }
    return env;
}

static bool too_long(char *const *words) {
    for (; *words; words++) {
        if (strlen(*words) >= LONGEST_WORD) return true;
    }
    return false;
}

/* As a shell looks for it; errno tells why not. What Linux would refuse is refused on every kernel. */
static void execute(char *const *argv, char *const *env) {
    char path[PATH_SIZE];
    const char *name = argv[0], *at = env_value(env, "PATH");
    bool denied = false;
    if (too_long(argv) || too_long(env)) {
        errno = E2BIG;
        return;
    }
    if (strchr(name, '/')) {
        execve(name, argv, env);
        return;
    }
    errno = ENOENT;
    if (!*name) return;
    while (at) {
        const char *end = strchr(at, ':');
        size_t length = end ? (size_t)(end - at) : strlen(at);
        if (length + strlen(name) + 2 < sizeof path) {
            memcpy(path, at, length);
            put_text(put_text(path + length, length ? "/" : ""), name);
            execve(path, argv, env);
            if (errno == EACCES) denied = true;
            else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG) return;
        }
        at = end ? end + 1 : NULL;
    }
    errno = denied ? EACCES : ENOENT;
}

/* A program that is not there is the command's own affair, told where its errors are read. */
_Noreturn static void no_program(const struct launch *launch) {
    const char *why;
    switch (errno) {
        case ENOENT: why = ": not found\n"; break;
        case EACCES: case EPERM: why = ": permission denied\n"; break;
        case ENOEXEC: why = ": not an executable of this machine\n"; break;
        case EISDIR: case ENOTDIR: case ELOOP: case ENAMETOOLONG: case ETXTBSY: case ELIBBAD:
            why = ": cannot be executed\n"; break;
        default: give_up(launch, STAGE_EXEC);
    }
    if (launch->strict) give_up(launch, STAGE_PROGRAM);
    int code = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    const char *parts[] = {launch->speaker, ": ", launch->argv[0], why};
    for (int i = 0; i < 4; i++) {
        if (write(2, parts[i], strlen(parts[i])) < 0) _exit(code);
    }
    _exit(code);
}

/* Exec closes them anyway; but a working directory could lead to one of them, by /proc/self/fd. */
static void leave_descriptors(const struct launch *launch) {
    close_between(3, launch->report - 1);
    close_from(launch->report + 1);
}

_Noreturn void child_run(const struct launch *launch) {
    reset_signals();
    setsid();
    for (int i = 0; i < 3; i++) dup2(launch->stdio[i], i);
    if (launch->terminal) ioctl(0, TIOCSCTTY, 0);
    /* While we are still the agent's user: later the file is not ours. That it fails is no reason not to run. */
    if (raise_oom_score) write_file("/proc/self/oom_score_adj", "500");
    if (open_files.rlim_max) setrlimit(RLIMIT_NOFILE, &open_files);
    char **env = complete_environment(launch);
    if (!identity_become(launch->identity)) give_up(launch, STAGE_IDENTITY);
    if (!launch->cwd && fchdir(launch->cwd_fd) < 0) give_up(launch, STAGE_DIRECTORY);
    leave_descriptors(launch);
    if (launch->cwd && chdir(launch->cwd) < 0) give_up(launch, STAGE_DIRECTORY);
    if (!child_filter_install()) give_up(launch, STAGE_FILTER);
    if (launch->shortcut) shortcut_run(launch->shortcut, env);
    execute(launch->argv, env);
    no_program(launch);
}
