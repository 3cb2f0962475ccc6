/* From the pipes and terminals of processes into their spools, and to whoever follows. */
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "actions.h"
#include "process.h"

enum { TERMINAL_DRAIN = 1 << 18 };

static void stream_end(struct stream *stream) {
    struct process *process = stream->process;
    loop_close(&stream->source);
    spool_finish(&stream->spool);
    if (process->terminal) input_drop(process);
    if (process->status != RUNNING) processes_trim();
    if (process->over) attachments_ended(process);
}

/* What is held up is watched for its edges only: that its writers are gone would else be told again and again. */
static void watch(struct stream *stream) {
    uint32_t events = stream->held_since ? (uint32_t)EPOLLET : EPOLLIN;
    loop_change(&stream->source, stream->write_wanted ? events | EPOLLOUT : events);
}

static void hold(struct stream *stream) {
    if (!stream->held_since) stream->held_since = now_ms();
    watch(stream);
}

void streams_continue(struct process *process) {
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &process->streams[i];
        if (!stream->held_since || !attachments_room(stream)) continue;
        stream->held_since = 0;
        watch(stream);
    }
}

/* One read. Answers with its length; 0: nothing there, or over, or held up. */
static size_t pump(struct stream *stream) {
    uint8_t *data = scratch();
    uint64_t room = stream->spool.stretched ? SCRATCH_SIZE : attachments_room(stream);
    if (!room) {
        hold(stream);
        return 0;
    }
    ssize_t got = read(stream->source.fd, data, room < SCRATCH_SIZE ? (size_t)room : SCRATCH_SIZE);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) { /* a terminal says EIO when nobody has it open any more */
        stream_end(stream);
        return 0;
    }
    spool_append(&stream->spool, data, (size_t)got);
    attachments_output(stream, data, (size_t)got);
    return (size_t)got;
}

static void on_stream(struct source *source, uint32_t events) {
    struct stream *stream = owner_of(source, struct stream, source);
    if (events & EPOLLOUT && stream->process->terminal) input_continue(stream->process);
    if (events & ~(uint32_t)EPOLLOUT && source->fd >= 0) pump(stream);
}

void stream_open(struct stream *stream, int fd) {
    if (!loop_add(&stream->source, fd, EPOLLIN, on_stream)) close(fd);
}

void stream_write_events(struct stream *stream, bool wanted) {
    stream->write_wanted = wanted;
    watch(stream);
}

/* What is in a pipe now was written before the process ended; more than that may come from those it left behind. It is
   kept whoever is behind: a pipe's worth more than the spool's limit. */
void stream_drain(struct stream *stream) {
    int waiting = 0;
    if (stream->source.fd < 0) return;
    if (stream->process->terminal) waiting = TERMINAL_DRAIN;
    else if (ioctl(stream->source.fd, FIONREAD, &waiting) < 0) return;
    for (size_t left = (size_t)waiting, got; left && stream->source.fd >= 0; left -= got < left ? got : left) {
        stream->spool.stretched = attachments_room(stream) < SCRATCH_SIZE;
        got = pump(stream);
        if (!got) break;
    }
    stream->spool.stretched = false;
}

void do_read_output(struct connection *c, uint32_t id, const char *process_id, uint8_t number, uint64_t offset,
                    uint32_t limit) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    if (number != STREAM_STDOUT && number != STREAM_STDERR) {
        answer_error(c, id, EINVAL, "this is not the number of a stream");
        return;
    }
    struct spool *spool = &process->streams[number - 1].spool;
    uint64_t left = offset < spool->size ? spool->size - offset : 0;
    size_t want = limit < OUTPUT_MAX ? limit : OUTPUT_MAX;
    if (want > left) want = (size_t)left;
    struct writer w = answer_begin();
    write_u64(&w, 0);
    write_u32(&w, 0);
    uint8_t *space = write_space(&w, want);
    if (space) {
        size_t got = spool_read(spool, &offset, space, want);
        put_u32(space - 12, (uint32_t)offset);
        put_u32(space - 8, (uint32_t)(offset >> 32));
        put_u32(space - 4, (uint32_t)got);
        w.length -= want - got;
    }
    answer_send(c, &w, ANS_OUTPUT, id, -1);
}

/* Linux tells those in front by itself; a kernel that knows terminals less well (gVisor) does not. */
static bool resize(const struct process *process, int terminal, const struct winsize *size) {
    pid_t front = 0;
    if (terminal < 0 || ioctl(terminal, TIOCSWINSZ, size) < 0) return false;
    if (!terminals_by_name) return true;
    if (ioctl(terminal, TIOCGPGRP, &front) < 0 || front <= 1) front = process->pid;
    kill(-front, SIGWINCH);
    return true;
}

void do_resize(struct connection *c, uint32_t id, const char *process_id, uint16_t rows, uint16_t cols) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    struct source *terminal = &process->streams[0].source;
    if (process->status != RUNNING) answer_error(c, id, EPIPE, "the process has ended");
    else if (!process->terminal) answer_error(c, id, ENOTTY, "the process does not run on a terminal");
    else if (!rows || !cols) answer_error(c, id, EINVAL, "a terminal has at least one row and column");
    else if (!resize(process, terminal->fd, &size)) answer_error(c, id, EPIPE, "the terminal is closed");
    else answer_ok(c, id);
}
