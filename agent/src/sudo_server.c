/* The agent's side of sudo. Whoever connects is inside and may be hostile: small bounds, and nobody waits for him. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "child.h"
#include "connection.h"
#include "sudo.h"
#include "sudo_message.h"
#include "text.h"

enum { MAX_CALLERS = 64, FIRST_ROOM = 4096 };

struct caller {
    struct source source;
    struct source start; /* as of struct process */
    struct caller *next; /* newest first */
    uint8_t *data;
    size_t have, room;
    int fds[SUDO_DESCRIPTORS];
    unsigned fd_count;
    pid_t pid; /* 0: none yet, or not any more */
    bool started;
};

static struct source listener = {.fd = -1};
static struct caller *callers;
static unsigned caller_count;

/* Without lingering: the last close of somebody's socket must not take the time that he set. */
static void close_foreign(int fd) {
    struct linger off = {0, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    close(fd);
}

static void close_fds(struct caller *caller) {
    while (caller->fd_count) close_foreign(caller->fds[--caller->fd_count]);
}

static void caller_end(struct caller *caller) {
    /* Who asked is gone, perhaps killed with his whole group: what he started must not outlive that. */
    if (caller->pid && kill(-caller->pid, SIGKILL) < 0) kill(caller->pid, SIGKILL); /* no group yet */
    close_fds(caller);
    loop_close(&caller->source);
    loop_close(&caller->start);
    struct caller **link = &callers;
    while (*link != caller) link = &(*link)->next;
    *link = caller->next;
    caller_count--;
    free(caller->data);
    loop_free(caller);
}

/* A few bytes to a socket that has room for them; one that has not is not read, and is given up. */
static bool say(struct caller *caller, uint8_t type, uint32_t number, const char *message) {
    struct writer w = {0};
    write_u32(&w, 0);
    write_u8(&w, type);
    write_raw(&w, "\0\0\0", 3);
    write_u32(&w, 1);
    if (type != ANS_OK) write_u32(&w, number);
    if (message) write_text(&w, message);
    if (!w.failed) put_u32(w.data, (uint32_t)(w.length - HEADER_SIZE));
    bool sent = !w.failed && send(caller->source.fd, w.data, w.length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)w.length;
    writer_drop(&w);
    return sent;
}

static void refuse(struct caller *caller, int error, const char *message) {
    say(caller, ANS_ERROR, (uint32_t)error, message);
    caller_end(caller);
}

static void on_start(struct source *source, uint32_t events) {
    (void)events;
    struct caller *caller = owner_of(source, struct caller, start);
    struct launch_failure failure;
    ssize_t got = read(source->fd, &failure, sizeof failure);
    loop_close(source);
    if (got == sizeof failure) {
        caller->pid = 0;
        refuse(caller, failure.error, launch_failure_text(&failure));
    } else if (!say(caller, ANS_OK, 0, NULL)) {
        caller_end(caller);
    }
}

static int start(struct caller *caller, const struct sudo_order *order, const struct identity *identity) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0) return errno;
    struct launch launch = {
        .argv = order->argv.items, .env = order->env.items, .cwd_fd = caller->fds[3], .identity = identity,
        .stdio = {caller->fds[0], caller->fds[1], caller->fds[2]}, .report = report[1], .speaker = "sudo",
    };
    pid_t pid = fork();
    if (pid == 0) child_run(&launch);
    int error = errno;
    close(report[1]);
    if (pid < 0 || !loop_add(&caller->start, report[0], EPOLLIN, on_start)) {
        close(report[0]);
        if (pid > 0) kill(pid, SIGKILL);
        return pid < 0 ? error : ENOMEM;
    }
    caller->pid = pid;
    caller->started = true;
    return 0;
}

static void run(struct caller *caller, size_t length) {
    struct sudo_order order;
    struct identity identity;
    if (caller->fd_count != SUDO_DESCRIPTORS || !sudo_order_read(caller->data + HEADER_SIZE, length - HEADER_SIZE, &order)) {
        caller_end(caller);
        return;
    }
    int error = identity_resolve(order.user, &identity);
    const char *why = "there is no such user";
    if (!error) {
        error = start(caller, &order, &identity);
        why = "the command could not be started";
    }
    sudo_order_drop(&order);
    close_fds(caller);
    free(caller->data);
    caller->data = NULL;
    caller->have = caller->room = 0;
    if (error) refuse(caller, error, why);
}

/* The kernel puts the descriptors of a message together: there is one part at most. */
static bool take_descriptors(struct caller *caller, struct msghdr *message) {
    bool good = !(message->msg_flags & MSG_CTRUNC);
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return good && !head;
    size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
        good = good && !caller->started && caller->fd_count < SUDO_DESCRIPTORS;
        if (good) caller->fds[caller->fd_count++] = fd;
        else close_foreign(fd);
    }
    return good;
}

/* 1: bytes came; 0: none for now; -1: no more, or not such. */
static int receive(struct caller *caller) {
    if (caller->have == caller->room) {
        size_t room = caller->room ? caller->room * 2 : FIRST_ROOM;
        uint8_t *grown = room > 2 * SUDO_PAYLOAD_MAX ? NULL : realloc(caller->data, room);
        if (!grown) return -1;
        caller->data = grown;
        caller->room = room;
    }
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * SUDO_DESCRIPTORS)];
    } control;
    struct iovec part = {caller->data + caller->have, caller->room - caller->have};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(caller->source.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (!take_descriptors(caller, &message) || got == 0) return -1;
    caller->have += (size_t)got;
    return 1;
}

/* Signals that the caller passes on. */
static bool take_signals(struct caller *caller) {
    const size_t length = HEADER_SIZE + 4;
    while (caller->have >= length) {
        if (sudo_frame_length(caller->data, SUDO_SIGNAL) != length) return false;
        uint32_t number = get_u32(caller->data + HEADER_SIZE);
        if (number < 1 || number > 64) return false;
        if (caller->pid) kill(-caller->pid, (int)number);
        caller->have -= length;
        memmove(caller->data, caller->data + length, caller->have);
    }
    return true;
}

static void on_caller(struct source *source, uint32_t events) {
    (void)events;
    struct caller *caller = owner_of(source, struct caller, source);
    int got = receive(caller);
    if (got == 0) return;
    if (got < 0 || (caller->started && !take_signals(caller))) {
        caller_end(caller);
        return;
    }
    if (caller->started || caller->have < HEADER_SIZE) return;
    size_t length = sudo_frame_length(caller->data, SUDO_RUN);
    if (!length || caller->have > length) caller_end(caller);
    else if (caller->have == length) run(caller, length);
}

/* When all places are taken, the one goes who has waited longest without asking for anything. */
static bool make_place(void) {
    struct caller *oldest = NULL;
    if (caller_count < MAX_CALLERS) return true;
    for (struct caller *caller = callers; caller; caller = caller->next) {
        if (!caller->started) oldest = caller;
    }
    if (oldest) caller_end(oldest);
    return oldest;
}

static void caller_open(int fd) {
    struct caller *caller = make_place() ? calloc(1, sizeof *caller) : NULL;
    if (!caller || !loop_add(&caller->source, fd, EPOLLIN, on_caller)) {
        close(fd);
        free(caller);
        return;
    }
    caller->start.fd = -1;
    caller->next = callers;
    callers = caller;
    caller_count++;
}

static void on_listener(struct source *source, uint32_t events) {
    (void)events;
    for (int i = 0; i < MAX_CALLERS; i++) { /* and then it is the turn of others, who are not hostile */
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        caller_open(fd);
    }
}

bool sudo_reaped(pid_t pid, int status) {
    struct caller *caller = callers;
    while (caller && caller->pid != pid) caller = caller->next;
    if (!caller) return false;
    if (caller->start.fd >= 0) on_start(&caller->start, EPOLLIN);
    if (caller->source.fd < 0) return true; /* ended by what on_start heard */
    caller->pid = 0;
    say(caller, SUDO_STATUS, (uint32_t)status, NULL);
    caller_end(caller);
    return true;
}

void sudo_listen(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat found;
    const char *slash = strrchr(path, '/');
    if (!slash || strlen(path) >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, (size_t)(slash - path));
    if (stat(address.sun_path, &found) < 0 || !S_ISDIR(found.st_mode)) return; /* a sandbox without sudo */
    put_text(address.sun_path, path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || chmod(path, 0666) < 0 || listen(fd, MAX_CALLERS) < 0 ||
        !loop_add(&listener, fd, EPOLLIN, on_listener)) {
        close(fd);
    }
}
