/* Floods: processes, zombies, threads of work, output, descriptors. Only for the inside of a sandbox. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

struct shared {
    atomic_long alive;
    atomic_long peak;
    atomic_long failures;
};

static struct shared *share(void)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit((int)not_tried("no memory: %s", strerror(errno)));
    memset(shared, 0, sizeof *shared);
    return shared;
}

/* Every process of it starts more, until the time is over or there are too many. */
static void multiply(struct shared *shared, double until, long most)
{
    while (seconds_now() < until && atomic_load(&shared->alive) < most) {
        long alive = atomic_fetch_add(&shared->alive, 1) + 1;
        pid_t pid = fork();
        if (pid == 0)
            continue; /* and starts more itself */
        if (pid < 0) {
            (void)atomic_fetch_sub(&shared->alive, 1);
            (void)atomic_fetch_add(&shared->failures, 1);
            (void)poll(NULL, 0, 5);
        } else if (alive > atomic_load(&shared->peak)) {
            atomic_store(&shared->peak, alive);
        }
    }
}

/* The words: seconds, and how many are too many. */
static enum verdict fork_bomb(const struct call *call)
{
    struct shared *shared = share();
    double until = seconds_now() + (double)number(call->words[0]);
    long most = number(call->words[1]);
    pid_t teller = getpid();
    (void)signal(SIGCHLD, SIG_IGN);
    multiply(shared, until, most);
    if (getpid() != teller)
        _exit(0);
    if (atomic_load(&shared->peak) >= most)
        return not_refused("%ld processes at once", atomic_load(&shared->peak));
    if (atomic_load(&shared->failures) == 0)
        return not_tried("no limit was met within the time: %ld processes", atomic_load(&shared->peak));
    return refused("no more than %ld processes at once", atomic_load(&shared->peak));
}

/* Children that have ended and that nobody asks about; and grandchildren left to the first process. */
static enum verdict zombies(const struct call *call)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long most = number(call->words[1]);
    long made = 0;
    long orphans = 0;
    int error = 0;
    while (seconds_now() < until && made < most) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)fork(); /* its child, if there is one, outlives it */
            _exit(0);
        }
        error = errno;
        if (pid < 0) {
            while (waitpid(-1, NULL, WNOHANG) > 0) /* and again from the start */
                orphans++;
            if (orphans == 0)
                return not_tried("fork: %s", strerror(error));
            made = 0;
            continue;
        }
        made++;
    }
    if (made >= most)
        return not_refused("%ld zombies at once", made);
    return refused("no more than allowed at once, %ld in all", orphans + made);
}

/* Twice as many as the host may have processors. */
static enum verdict spin(const struct call *call)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long count = sysconf(_SC_NPROCESSORS_ONLN) * 2;
    volatile unsigned long turns = 0;
    for (long i = 1; i < count && fork() > 0; i++)
        ;
    while (seconds_now() < until)
        for (int i = 0; i < 100000; i++)
            turns++;
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    while (wait(NULL) > 0)
        ;
    return refused("%ld processes that only calculate", count);
}

static enum verdict output(const struct call *call)
{
    static char text[65536];
    double until = seconds_now() + (double)number(call->words[0]);
    memset(text, 'x', sizeof text);
    long long written = 0;
    for (int fd = 1; seconds_now() < until; fd = 3 - fd) {
        ssize_t put = write(fd, text, sizeof text);
        if (put <= 0)
            break;
        written += put;
    }
    (void)fprintf(stderr, "\n%lld\n", written);
    return REFUSED;
}

/* All that one process may have, in several processes. The words: seconds, how many processes, most for each. */
static enum verdict descriptors(const struct call *call)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long processes = number(call->words[1]);
    long most = number(call->words[2]);
    bool unlimited = false;
    for (long i = 0; i < processes; i++) {
        if (fork() != 0)
            continue;
        long opened = 0;
        while (opened < most && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
            opened++;
        while (seconds_now() < until)
            (void)poll(NULL, 0, 20);
        _exit(opened >= most ? 1 : 0);
    }
    for (int status; wait(&status) > 0;)
        unlimited = unlimited || (WIFEXITED(status) && WEXITSTATUS(status) == 1);
    if (unlimited)
        return not_refused("one process opened %ld files", most);
    return refused("every process met its limit");
}

/* Threads that end at once, as fast as they can be made. */
static int nothing(void *unused)
{
    (void)unused;
    return 0;
}

static enum verdict threads(const struct call *call)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long made = 0;
    while (seconds_now() < until) {
        thrd_t thread;
        if (thrd_create(&thread, nothing, NULL) != thrd_success)
            continue;
        (void)thrd_detach(thread);
        made++;
    }
    return refused("%ld threads, one after the other", made);
}

/* Many watchers of one directory, and files that come and go in it. The words: seconds, and a directory. */
static enum verdict inotify_events(const struct call *call)
{
    enum { WATCHERS = 16, PROCESSES = 4 };
    char path[256];
    double until = seconds_now() + (double)number(call->words[0]);
    for (int i = 0; i < WATCHERS; i++) {
        int watcher = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (watcher >= 0)
            (void)inotify_add_watch(watcher, call->words[1], IN_ALL_EVENTS);
    }
    pid_t teller = getpid();
    for (int i = 1; i < PROCESSES && fork() > 0; i++)
        ;
    (void)snprintf(path, sizeof path, "%s/watched-%d", call->words[1], (int)getpid());
    while (seconds_now() < until) {
        int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (file >= 0)
            (void)close(file);
        (void)unlink(path);
    }
    if (getpid() != teller)
        _exit(0);
    while (wait(NULL) > 0)
        ;
    return refused("events for %d watchers", (int)WATCHERS);
}

/* Datagrams from processes to themselves. */
static enum verdict loopback(const struct call *call)
{
    static char text[32768];
    enum { PROCESSES = 4 };
    double until = seconds_now() + (double)number(call->words[0]);
    pid_t teller = getpid();
    for (int i = 1; i < PROCESSES && fork() > 0; i++)
        ;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int ready = fd >= 0 && bind(fd, (struct sockaddr *)&own, length) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &length) == 0;
    while (ready && seconds_now() < until) {
        (void)sendto(fd, text, sizeof text, 0, (struct sockaddr *)&own, length);
        (void)recv(fd, text, sizeof text, 0);
    }
    if (getpid() != teller)
        _exit(0);
    while (wait(NULL) > 0)
        ;
    return ready ? refused("datagrams of %d processes", (int)PROCESSES) : not_tried("no socket");
}

/* Everything that a signal can reach. */
static enum verdict kill_everyone(const struct call *call)
{
    (void)call;
    if (getpid() == 1)
        return not_tried("this is the first process");
    (void)kill(-1, SIGKILL);
    return refused("whatever it reached, it was inside");
}

const struct attempt flood_attempts[] = {
    {"bomb-fork", fork_bomb, NULL, 2, 0},
    {"bomb-zombies", zombies, NULL, 2, 0},
    {"bomb-cpu", spin, NULL, 1, 0},
    {"bomb-output", output, NULL, 1, 0},
    {"bomb-descriptors", descriptors, NULL, 3, 0},
    {"bomb-threads", threads, NULL, 1, 0},
    {"bomb-inotify-events", inotify_events, NULL, 2, 0},
    {"bomb-loopback", loopback, NULL, 1, 0},
    {"kill-everyone", kill_everyone, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
