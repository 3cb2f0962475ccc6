/* To the stdin of processes: in order, answered when it is in the pipe, never waiting for one that does not read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actions.h"
#include "process.h"

enum { END_OF_FILE = 4 };

static int input_fd(const struct process *process) {
    return process->terminal ? process->streams[0].source.fd : process->input.fd;
}

static struct attachment *first_pending(const struct process *process) {
    struct attachment *attachment = process->attachments;
    while (attachment && attachment->type != REQ_STDIN) attachment = attachment->next;
    return attachment;
}

static void want_write(struct process *process, bool wanted) {
    if (process->terminal) stream_write_events(&process->streams[0], wanted);
    else loop_change(&process->input, wanted ? EPOLLOUT : 0);
}

void input_drop(struct process *process) {
    loop_close(&process->input);
    for (struct attachment *pending; (pending = first_pending(process));) {
        request_fail(&pending->request, EPIPE, "the process reads no more");
    }
}

/* False: it takes no more for now. */
static bool write_pending(struct process *process, struct attachment *pending) {
    while (pending->done < pending->length) {
        ssize_t put = write(input_fd(process), pending->data + pending->done, pending->length - pending->done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) return false;
        if (put < 0) {
            input_drop(process);
            return true;
        }
        pending->done += (size_t)put;
    }
    struct connection *connection = pending->request.connection;
    uint32_t id = pending->request.id;
    request_close(&pending->request);
    answer_ok(connection, id);
    return true;
}

void input_continue(struct process *process) {
    for (struct attachment *pending; (pending = first_pending(process));) {
        if (!write_pending(process, pending)) {
            want_write(process, true);
            return;
        }
    }
    want_write(process, false);
    if (process->input_closing) loop_close(&process->input);
}

static bool may_write(struct connection *c, uint32_t id, const struct process *process) {
    if (process->status != RUNNING) answer_error(c, id, EPIPE, "the process has ended");
    else if (!process->has_input) answer_error(c, id, EBADF, "the process was started without a pipe for its input");
    else if (process->input_closing || input_fd(process) < 0) answer_error(c, id, EPIPE, "the input is closed");
    else return true;
    return false;
}

static void write_input(struct connection *c, uint32_t id, struct process *process, const uint8_t *data, size_t length) {
    if (process->pending_input + length > MAX_PENDING_INPUT) {
        answer_error(c, id, EAGAIN, "the process does not read, and too much waits for it already");
        return;
    }
    struct attachment *pending = attach(c, id, process, REQ_STDIN);
    if (!pending) return;
    pending->data = malloc(length ? length : 1);
    if (!pending->data) {
        request_fail(&pending->request, ENOMEM, "no memory");
        return;
    }
    memcpy(pending->data, data, length);
    pending->length = length;
    process->pending_input += length;
    if (first_pending(process) == pending) input_continue(process);
}

void do_stdin(struct connection *c, uint32_t id, const char *process_id, const uint8_t *data, uint32_t length) {
    struct process *process = process_asked(c, id, process_id);
    if (process && may_write(c, id, process)) write_input(c, id, process, data, length);
}

void do_close_stdin(struct connection *c, uint32_t id, const char *process_id) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    if (process->status == RUNNING && process->terminal && input_fd(process) >= 0) {
        const uint8_t end = END_OF_FILE;
        write_input(c, id, process, &end, 1);
        return;
    }
    process->input_closing = true;
    if (process->status == RUNNING && process->input.fd >= 0) input_continue(process);
    answer_ok(c, id);
}
