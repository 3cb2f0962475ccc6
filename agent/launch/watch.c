/* The watcher of a home: ends the sandboxes whose folder was removed, also when no server runs.
 *
 * One process for a home, outside of every sandbox: nothing inside can signal it, freeze it or keep it from ending
 * them. A server tells it of each sandbox by a message with two descriptors, of the folder and of the first process,
 * so neither a rename nor a process id that is used again can mislead it. It stays until the last of these processes
 * has ended and no server is connected.
 *
 * A folder is gone when its directory has no name any more, or when the record in it is missing at two looks: a server
 * replaces that by a rename, so it is never missing while the sandbox is anybody's. Whatever else cannot be read
 * (ESTALE, EIO, EACCES) says nothing. */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

enum {
    LISTENER = 3,
    LOOK_MS = 2000,
    LOOKS = 2,     /* in a row, at which the record must be missing */
    CLEANINGS = 30, /* looks that a control group gets to become empty */
    MESSAGE_MAX = 16384,
    CLAIM_MAX = 4096,
    GIVEN = 2,
};

struct source {
    int fd;
    enum { NEWCOMERS, SERVER, PROCESS } kind;
};

struct watched {
    struct source process; /* first, so that a source leads to it; fd -1: it has ended */
    struct watched *next;
    int folder;
    int missing;
    int cleanings;
    bool struck;
    /* Words in `text`; empty where there is none. */
    const char *key, *kill_file, *freezer_file, *claim, *claimed_for;
    char *groups, *end;
    char text[];
};

static int epoll;
static size_t servers;
static struct watched *all;

static bool add_source(struct source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = source}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, source->fd, &event) == 0;
}

static void put(const char *path, const char *text)
{
    if (*path == '\0')
        return;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* with its group it has gone, too */
    (void)!write(fd, text, strlen(text));
    (void)close(fd);
}

/* From outside, with nothing asked of what runs inside: the first process takes all others with it. */
static void strike(struct watched *one)
{
    one->struck = true;
    (void)syscall(SYS_pidfd_send_signal, one->process.fd, SIGKILL, NULL, 0);
    put(one->kill_file, "1");
    put(one->freezer_file, "THAWED"); /* of v1: who is frozen cannot die */
}

/* A claim is its file's content: a range that somebody else has by now stays his. */
static void release_claim(const struct watched *one)
{
    char text[CLAIM_MAX];
    if (*one->claim == '\0')
        return;
    int fd = open(one->claim, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    ssize_t got = read(fd, text, sizeof text);
    (void)close(fd);
    if (got >= 0 && (size_t)got == strlen(one->claimed_for) && memcmp(text, one->claimed_for, (size_t)got) == 0)
        (void)unlink(one->claim);
}

/* False while the kernel still has something in one of its groups. With the last of them the parent goes, too, which
 * all sandboxes of the home have in common: the kernel refuses as long as another is in it. */
static bool clean(struct watched *one)
{
    bool done = true;
    for (const char *group = one->groups; group < one->end; group += strlen(group) + 1) {
        if (rmdir(group) < 0 && errno == EBUSY)
            done = false;
    }
    for (char *group = one->groups; done && group < one->end; group += strlen(group) + 1) {
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            continue;
        *slash = '\0';
        (void)rmdir(group);
        *slash = '/';
    }
    return done;
}

static void forget(struct watched *one)
{
    struct watched **link = &all;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    if (one->process.fd >= 0)
        (void)close(one->process.fd);
    (void)close(one->folder);
    free(one);
}

/* What a server ends is cleaned up by that server. */
static void ended(struct watched *one)
{
    (void)close(one->process.fd); /* out of epoll by that: nobody else has this open file */
    one->process.fd = -1;
    if (!one->struck) {
        forget(one);
        return;
    }
    release_claim(one);
    if (clean(one))
        forget(one);
}

static bool gone(struct watched *one)
{
    struct stat status;
    if (fstat(one->folder, &status) == 0 && status.st_nlink == 0)
        return true;
    bool missing = faccessat(one->folder, "record.json", F_OK, 0) < 0 && errno == ENOENT;
    one->missing = missing ? one->missing + 1 : 0;
    return one->missing >= LOOKS;
}

static void look(void)
{
    for (struct watched *one = all, *next; one != NULL; one = next) {
        next = one->next;
        if (one->process.fd >= 0) {
            if (one->struck || gone(one))
                strike(one);
        } else if (clean(one) || ++one->cleanings >= CLEANINGS)
            forget(one);
    }
}

static const char *next_word(char **at, const char *end)
{
    char *word = *at;
    if (word >= end)
        return NULL;
    *at += strlen(word) + 1;
    return word;
}

static bool known(const char *key)
{
    for (const struct watched *one = all; one != NULL; one = one->next) {
        if (one->process.fd >= 0 && strcmp(one->key, key) == 0)
            return true;
    }
    return false;
}

/* The descriptors are ours from here on. */
static void begin(const char *text, size_t length, const int given[GIVEN])
{
    struct watched *one = malloc(sizeof *one + length);
    if (one != NULL) {
        memset(one, 0, sizeof *one);
        memcpy(one->text, text, length);
        char *at = one->text;
        one->end = at + length;
        const char **words[] = {&one->key, &one->kill_file, &one->freezer_file, &one->claim, &one->claimed_for};
        bool whole = true;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            whole = whole && (*words[i] = next_word(&at, one->end)) != NULL;
        one->groups = at;
        one->folder = given[0];
        one->process = (struct source){.fd = given[1], .kind = PROCESS};
        if (whole && !known(one->key) && add_source(&one->process)) {
            one->next = all;
            all = one;
            return;
        }
        free(one);
    }
    for (int i = 0; i < GIVEN; i++)
        (void)close(given[i]);
}

/* One message of a server. False at its end. */
static bool receive(int from)
{
    static char text[MESSAGE_MAX];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(GIVEN * sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {text, sizeof text};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN || errno == EMFILE;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        int given[GIVEN];
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(given, CMSG_DATA(head), count * sizeof(int));
        if (count == GIVEN && got > 0 && text[got - 1] == '\0' && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
            begin(text, (size_t)got, given);
        else
            while (count > 0)
                (void)close(given[--count]);
    }
    return got > 0;
}

static void let_in(int listener)
{
    struct source *server = malloc(sizeof *server);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (server != NULL && fd >= 0) {
        *server = (struct source){.fd = fd, .kind = SERVER};
        if (add_source(server)) {
            servers++;
            return;
        }
    }
    if (fd >= 0)
        (void)close(fd);
    free(server);
}

static void serve(struct source *source)
{
    if (source->kind == NEWCOMERS)
        let_in(source->fd);
    else if (source->kind == PROCESS)
        ended((struct watched *)source);
    else if (!receive(source->fd)) {
        (void)close(source->fd);
        free(source);
        servers--;
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Nobody's child, and in nobody's way. */
static void detach(void)
{
    struct rlimit files;
    pid_t child = fork();
    if (child != 0)
        _exit(child < 0);
    (void)setsid();
    (void)signal(SIGPIPE, SIG_IGN);
    if (chdir("/") < 0)
        _exit(1);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* two for each sandbox */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

_Noreturn void watch(void)
{
    static struct source newcomers = {.fd = LISTENER, .kind = NEWCOMERS};
    detach();
    (void)fcntl(LISTENER, F_SETFD, FD_CLOEXEC);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || !add_source(&newcomers))
        _exit(1);
    let_in(LISTENER); /* whoever started us is waiting there */
    int64_t looked = now_ms();
    /* One who comes while we leave hears of our end, and starts another. */
    while (all != NULL || servers > 0) {
        struct epoll_event event; /* one at a time: what it does may end what others of a batch are about */
        int64_t left = looked + LOOK_MS - now_ms();
        int count = epoll_wait(epoll, &event, 1, all == NULL ? -1 : left < 0 ? 0 : (int)left);
        if (count > 0)
            serve(event.data.ptr);
        if (all != NULL && now_ms() - looked >= LOOK_MS) {
            look();
            looked = now_ms();
        }
    }
    _exit(0);
}
