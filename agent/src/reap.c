/* Whoever has ended is waited for: our own, and as PID 1 everybody's orphans. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "sudo.h"
#include "worker.h"

static struct source children = {.fd = -1};

static void reap(pid_t pid, int status) {
    struct process *process = process_by_pid(pid);
    if (process) {
        if (!process->starting || spawn_settle(process)) process_ended(process, status);
    } else if (!sudo_reaped(pid, status)) {
        worker_reaped(pid);
    }
}

static void on_children(struct source *source, uint32_t events) {
    (void)events;
    struct signalfd_siginfo info;
    while (read(source->fd, &info, sizeof info) > 0) {
        if (info.ssi_signo == SIGTERM) exit(0);
    }
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0;) reap(pid, status);
}

bool reaper_start(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
#ifdef __SANITIZE_ADDRESS__
    sigaddset(&set, SIGTERM); /* an orderly end, at which the sanitizer looks for what was lost */
#endif
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) return false;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd >= 0 && loop_add(&children, fd, EPOLLIN, on_children);
}
