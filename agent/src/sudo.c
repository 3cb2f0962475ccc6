/* The shim that is called sudo inside a sandbox: it has no rights of its own, and asks the agent. */
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "identity.h"
#include "sudo_command.h"
#include "sudo_message.h"
#include "text.h"

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT};

static void say(int to, const char *first, const char *second, const char *third) {
    const char *parts[] = {first, second, third, "\n"};
    for (int i = 0; i < 4; i++) {
        if (write(to, parts[i], strlen(parts[i])) < 0) exit(1);
    }
}

_Noreturn static void fail(const char *what, const char *about) {
    say(2, "sudo: ", what, about);
    exit(1);
}

static int connect_agent(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("PADDOCK_SUDO_SOCKET");
    if (!path || strlen(path) >= sizeof address.sun_path) path = SUDO_SOCKET;
    put_text(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("the sandbox's agent does not answer", "");
    return fd;
}

static void write_list(struct writer *w, char **items) {
    uint32_t count = 0;
    while (items[count]) count++;
    write_u32(w, count);
    for (uint32_t i = 0; i < count; i++) write_text(w, items[i]);
}

static void send_all(int to, const uint8_t *data, size_t length) {
    while (length) {
        ssize_t sent = send(to, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("the sandbox's agent is gone", "");
        data += sent;
        length -= (size_t)sent;
    }
}

/* The first byte carries our input, outputs and directory. */
static void send_order(int to, struct writer *w, const char *directory) {
    int fds[SUDO_DESCRIPTORS] = {0, 1, 2, open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec part = {w->data, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (fds[3] < 0) fds[3] = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC); /* without a home, one stays where one is */
    if (fds[3] < 0) fail("this directory cannot be opened: ", directory);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    if (sendmsg(to, &message, MSG_NOSIGNAL) != 1) fail("the input, the output or the errors are closed", "");
    send_all(to, w->data + 1, w->length - 1);
}

static void ask(int to, const struct sudo_call *call, const struct account *target, char **env) {
    char **argv = sudo_call_argv(call, target);
    char **full = argv ? sudo_call_environment(call, target, env, argv) : NULL;
    struct writer w = {0};
    if (!full) fail("no memory", "");
    write_u32(&w, 0);
    write_u8(&w, SUDO_RUN);
    write_u8(&w, SUDO_DESCRIPTORS);
    write_u16(&w, 0);
    write_u32(&w, 1);
    write_list(&w, argv);
    write_list(&w, full);
    write_text(&w, call->user);
    if (w.failed || w.length > HEADER_SIZE + SUDO_PAYLOAD_MAX) fail("the command is too long", "");
    put_u32(w.data, (uint32_t)(w.length - HEADER_SIZE));
    send_order(to, &w, call->login ? target->home : ".");
    writer_drop(&w);
}

static bool receive_all(int from, uint8_t *into, size_t length) {
    while (length) {
        ssize_t got = recv(from, into, length, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        into += got;
        length -= (size_t)got;
    }
    return true;
}

/* Ends as the command did. */
_Noreturn static void finish(int status) {
    if (!WIFSIGNALED(status)) exit(WEXITSTATUS(status));
    int number = WTERMSIG(status);
    sigset_t set;
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    exit(128 + number);
}

static void hear(int from) {
    uint8_t frame[512];
    if (!receive_all(from, frame, HEADER_SIZE)) fail("the sandbox's agent is gone", "");
    uint32_t length = get_u32(frame);
    if (length >= sizeof frame || !receive_all(from, frame, length)) fail("the sandbox's agent is gone", "");
    struct reader r = {frame, frame + length, false, false};
    if (length == 0) return; /* OK: it runs */
    uint32_t number = read_u32(&r);
    if (length == 4) finish((int)number);
    fail(read_text(&r), number == E2BIG ? " (too long)" : "");
}

static int block_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static void forward(int signals, int to) {
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) != sizeof info) return;
    uint8_t frame[HEADER_SIZE + 4] = {4, 0, 0, 0, SUDO_SIGNAL, 0, 0, 0, 1};
    put_u32(frame + HEADER_SIZE, info.ssi_signo);
    send_all(to, frame, sizeof frame);
}

static bool answered_here(const struct sudo_call *call) {
    if (call->help) say(1, "usage: sudo [-EHins] [-u user] [VAR=value] [command [argument...]]", "", "");
    else if (call->version) say(1, "sudo of Paddock: every user of this sandbox may become its root", "", "");
    else if (call->list) say(1, "Every user of this sandbox may run:\n    (ALL : ALL) NOPASSWD: ALL", "", "");
    else return call->nothing && !*call->command && !call->shell && !call->login;
    return true;
}

int sudo_main(int argc, char **argv, char **env) {
    struct sudo_call call;
    struct identity target;
    const char *wrong = sudo_call_read(argc, argv, &call);
    if (wrong) fail("this option is not known here: ", wrong);
    if (answered_here(&call)) return 0;
    if (!*call.command && !call.shell && !call.login) fail("no command; see sudo --help", "");
    if (identity_resolve(call.user, &target)) fail("there is no such user: ", call.user);
    int signals = block_signals(), agent = connect_agent();
    ask(agent, &call, &target.account, env);
    struct pollfd polled[2] = {{agent, POLLIN, 0}, {signals, POLLIN, 0}};
    for (;;) {
        if (poll(polled, 2, -1) < 0 && errno != EINTR) fail("it cannot be waited for", "");
        if (polled[0].revents) hear(agent);
        if (polled[1].revents) forward(signals, agent);
    }
}
