/* SPAWN: pipes or a terminal, a child, and the news of how it began. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "actions.h"
#include "child.h"
#include "null.h"
#include "process.h"
#include "text.h"

/* The ends that the agent keeps, and those that the child gets; -1: none. */
struct ends {
    int input, output, error;
    int child[3];
};

static void close_all(int *fds, int count) {
    for (int i = 0; i < count; i++) {
        if (fds[i] < 0) continue;
        /* A terminal's one descriptor is there three times. */
        for (int j = i + 1; j < count; j++) {
            if (fds[j] == fds[i]) fds[j] = -1;
        }
        close(fds[i]);
        fds[i] = -1;
    }
}

static int open_pipe(int *ours, int *theirs, bool to_child) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0) return errno;
    *ours = fds[to_child];
    *theirs = fds[!to_child];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? errno : 0;
}

static int open_pipes(struct ends *ends, bool input) {
    int error = open_pipe(&ends->output, &ends->child[1], false);
    if (!error) error = open_pipe(&ends->error, &ends->child[2], false);
    if (!error && input) error = open_pipe(&ends->input, &ends->child[0], true);
    if (!error && !input && (ends->child[0] = fcntl(null_descriptor, F_DUPFD_CLOEXEC, 3)) < 0) error = errno;
    return error;
}

/* Root inside may have put something else in its place. */
static bool is_terminal_maker(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISCHR(found.st_mode) && found.st_rdev == makedev(5, 2);
}

bool terminals_by_name;

/* The other end of a terminal; by its name only where the kernel cannot hand it out (gVisor). */
static int other_end(int terminal) {
    const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    unsigned number;
    struct stat found;
    char path[NAME_SIZE];
    int fd = ioctl(terminal, TIOCGPTPEER, flags);
    if (fd >= 0 || (errno != ENOTTY && errno != EINVAL)) return fd;
    if (ioctl(terminal, TIOCGPTN, &number) < 0) return -1;
    terminals_by_name = true;
    put_number(put_text(path, "/dev/pts/"), number);
    fd = open(path, flags | O_NOFOLLOW);
    if (fd < 0 || (fstat(fd, &found) == 0 && S_ISCHR(found.st_mode) && isatty(fd))) return fd;
    close(fd);
    errno = ENODEV;
    return -1;
}

static int open_terminal(struct ends *ends, uint16_t rows, uint16_t cols) {
    const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
    int unlocked = 0;
    struct winsize size = {.ws_row = rows ? rows : 24, .ws_col = cols ? cols : 80};
    ends->output = open("/dev/pts/ptmx", flags);
    if (ends->output < 0) ends->output = open("/dev/ptmx", flags);
    if (ends->output < 0) return errno;
    if (!is_terminal_maker(ends->output)) return ENODEV;
    if (ioctl(ends->output, TIOCSPTLCK, &unlocked) < 0) return errno;
    int slave = other_end(ends->output);
    if (slave < 0) return errno;
    for (int i = 0; i < 3; i++) ends->child[i] = slave;
    return ioctl(slave, TIOCSWINSZ, &size) < 0 ? errno : 0;
}

/* Pipes and terminals belong to the user, who can then open /dev/stdout and the like again. */
static int open_ends(struct ends *ends, const struct spawn_order *order, const struct identity *identity) {
    int error = identity_enter(identity);
    if (error) return error;
    if (order->flags & SPAWN_TERMINAL) error = open_terminal(ends, order->rows, order->cols);
    else error = open_pipes(ends, order->flags & SPAWN_STDIN);
    identity_leave(identity);
    return error;
}

static void on_input(struct source *source, uint32_t events) {
    struct process *process = owner_of(source, struct process, input);
    if (events & EPOLLERR) input_drop(process);
    else input_continue(process);
}

static void failed(struct process *process, int error, const char *message) {
    attachments_failed(process, error, message);
    process_forget(process);
}

bool spawn_settle(struct process *process) {
    struct launch_failure failure;
    ssize_t got = read(process->start.fd, &failure, sizeof failure);
    loop_close(&process->start);
    if (got == sizeof failure) {
        failed(process, failure.stage == STAGE_PROGRAM ? ENOEXEC : failure.error, launch_failure_text(&failure));
        return false;
    }
    process_started(process);
    return true;
}

static void on_start(struct source *source, uint32_t events) {
    (void)events;
    spawn_settle(owner_of(source, struct process, start));
}

static int start(struct process *process, struct ends *ends, const struct spawn_order *order,
                 const struct identity *identity) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0) return errno;
    struct launch launch = {
        .argv = order->argv.items, .env = order->env.items,
        .shortcut = order->shortcut.count ? order->shortcut.items : NULL, .cwd = order->cwd, .cwd_fd = -1, .identity = identity,
        .stdio = {ends->child[0], ends->child[1], ends->child[2]}, .report = report[1],
        .terminal = process->terminal, .strict = order->flags & SPAWN_STRICT, .speaker = "paddock",
    };
    process->pid = fork();
    if (process->pid == 0) child_run(&launch);
    int error = process->pid < 0 ? errno : 0;
    close(report[1]);
    if (error || !loop_add(&process->start, report[0], EPOLLIN, on_start)) {
        close(report[0]);
        if (!error) kill(process->pid, SIGKILL);
        return error ? error : ENOMEM;
    }
    return 0;
}

static int begin(struct process *process, const struct spawn_order *order, const struct identity *identity) {
    struct ends ends = {-1, -1, -1, {-1, -1, -1}};
    int error = open_ends(&ends, order, identity);
    if (!error) error = start(process, &ends, order, identity);
    close_all(ends.child, 3);
    if (error) {
        close_all(&ends.input, 1);
        close_all(&ends.output, 1);
        close_all(&ends.error, 1);
        return error;
    }
    stream_open(&process->streams[0], ends.output);
    if (ends.error >= 0) stream_open(&process->streams[1], ends.error);
    if (ends.input >= 0 && !loop_add(&process->input, ends.input, 0, on_input)) close(ends.input);
    return 0;
}

static void follow_as_ordered(struct attachment *attachment, const struct spawn_order *order) {
    attachment->follow = order->flags & SPAWN_FOLLOW;
    attachment->all = order->flags & SPAWN_FOLLOW_ALL;
    if (attachment->follow) attachment_window(attachment, &order->window);
}

/* The same id again: the same process. */
static void answer_existing(struct connection *c, uint32_t id, struct process *process, const struct spawn_order *order) {
    struct attachment *attachment = attach(c, id, process, REQ_SPAWN);
    if (!attachment) return;
    follow_as_ordered(attachment, order);
    if (!process->starting) attachments_started(process);
}

static const char *refusal(const struct spawn_order *order) {
    size_t length = strlen(order->process_id);
    if (!length || length > MAX_PROCESS_ID) return "the id of a process has 1 to 128 bytes";
    if (!order->argv.count) return "the command is empty";
    if (order->note_length > MAX_NOTE) return "the note is too long";
    if (order->cwd[0] != '/') return "the working directory is not absolute";
    for (char **variable = order->env.items; *variable; variable++) {
        if (**variable == '=' || !strchr(*variable, '=')) return "a variable has no name or no value";
    }
    return NULL;
}

static int keep_note(struct process *process, const struct spawn_order *order) {
    if (!order->note_length) return 0;
    process->note = malloc(order->note_length);
    if (!process->note) return ENOMEM;
    memcpy(process->note, order->note, order->note_length);
    process->note_length = order->note_length;
    return 0;
}

void do_spawn(struct connection *c, uint32_t id, struct spawn_order *order) {
    struct identity identity;
    const char *why = refusal(order);
    struct process *process = why ? NULL : process_find(order->process_id);
    if (process) {
        answer_existing(c, id, process, order);
        return;
    }
    if (!why && identity_resolve(order->user, &identity)) why = "there is no such user in this sandbox";
    if (why) {
        answer_error(c, id, EINVAL, why);
        return;
    }
    if (processes_active() >= MAX_ACTIVE) {
        answer_error(c, id, EAGAIN, "too many processes run already");
        return;
    }
    process = process_new(order->process_id, order->label, order->spool_limit);
    if (!process) {
        answer_error(c, id, ENOMEM, "no memory");
        return;
    }
    process->terminal = order->flags & SPAWN_TERMINAL;
    process->has_input = order->flags & (SPAWN_TERMINAL | SPAWN_STDIN);
    process->hard_timeout_ms = order->hard_timeout_ms;
    struct attachment *attachment = attach(c, id, process, REQ_SPAWN);
    if (!attachment) {
        process_forget(process);
        return;
    }
    follow_as_ordered(attachment, order);
    int error = keep_note(process, order);
    if (!error) error = begin(process, order, &identity);
    if (error) failed(process, error, "the process could not be started");
}
