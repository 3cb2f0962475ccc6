/* Allowances that the kernel counts by user or for everybody: one sandbox takes all it can get of one, and holds it
 * while others try to have just one. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Takes one more; false with errno where there is no more. */
typedef bool one_more(long number_of);

static bool inotify_instance(long number_of)
{
    (void)number_of;
    return inotify_init1(IN_CLOEXEC) >= 0;
}

static bool terminal(long number_of)
{
    (void)number_of;
    return open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0;
}

/* Queued for this very process, which has them blocked. */
static bool pending_signal(long number_of)
{
    union sigval value = {.sival_int = (int)number_of};
    return sigqueue(getpid(), SIGRTMIN + 1, value) == 0;
}

static bool message_queue(long number_of)
{
    char name[64];
    struct {
        long flags, messages, size, waiting, reserved[4];
    } shape = {.messages = 10, .size = 8192};
    (void)snprintf(name, sizeof name, "probe-%d-%ld", (int)getpid(), number_of);
    long queue = syscall(SYS_mq_open, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &shape);
    int error = errno;
    (void)syscall(SYS_mq_unlink, name);
    errno = error;
    return queue >= 0;
}

static bool locked_page(long number_of)
{
    (void)number_of;
    void *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    return page != MAP_FAILED;
}

static bool pipe_buffer(long number_of)
{
    int pair[2];
    (void)number_of;
    return pipe2(pair, O_CLOEXEC) == 0 && fcntl(pair[0], F_SETPIPE_SZ, 1 << 20) >= 1 << 20;
}

static bool watched_descriptor(long number_of)
{
    static int watcher = -1;
    static int event = -1;
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = 0};
    if (watcher < 0 || number_of % 1000 == 0) {
        watcher = epoll_create1(EPOLL_CLOEXEC);
        event = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    }
    int copy = fcntl(event, F_DUPFD_CLOEXEC, 3);
    return watcher >= 0 && copy >= 0 && epoll_ctl(watcher, EPOLL_CTL_ADD, copy, &wanted) == 0;
}

static bool descriptor_in_flight(long number_of)
{
    static int pair[2] = {-1, -1};
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec byte = {.iov_base = (void *)"x", .iov_len = 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = sizeof control;
    memset(control, 0, sizeof control);
    if (number_of % 100 == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &pair[1], sizeof(int));
    return sendmsg(pair[0], &message, MSG_NOSIGNAL) == 1;
}

static const struct {
    const char *name;
    one_more *more;
} kinds[] = {
    {"inotify", inotify_instance},   {"terminals", terminal},        {"signals", pending_signal},
    {"queues", message_queue},       {"locked-memory", locked_page}, {"pipes", pipe_buffer},
    {"watches", watched_descriptor}, {"in-flight", descriptor_in_flight},
};

static one_more *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].more;
    exit((int)not_tried("there is no allowance %s", name));
}

static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGRTMIN + 1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The words: which, how many at most, and for how many seconds. Says "holding" when it has them. */
enum verdict allowance_hold(const struct call *call)
{
    one_more *more = kind_of(call->words[0]);
    long most = number(call->words[1]);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    block_signals();
    long taken = 0;
    while (taken < most && more(taken))
        taken++;
    (void)printf("holding %ld, then: %s\n", taken, taken < most ? strerror(errno) : "enough");
    (void)fflush(stdout);
    (void)poll(NULL, 0, (int)number(call->words[2]) * 1000);
    return REFUSED;
}

/* The word: which. Here "not refused" is the good answer: there is one for this process too. */
enum verdict allowance_use(const struct call *call)
{
    one_more *more = kind_of(call->words[0]);
    block_signals();
    for (long i = 0; i < 3; i++)
        if (!more(i))
            return refused("%s", strerror(errno));
    return not_refused("there is one");
}
