/* Requests that wait for a process: to start, to write, to end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actions.h"
#include "process.h"

static void send_process(struct attachment *attachment, uint8_t type) {
    struct writer w = answer_begin();
    process_write(&w, attachment->process);
    answer_send(attachment->request.connection, &w, type, attachment->request.id, -1);
}

static void finish(struct attachment *attachment, uint8_t type) {
    send_process(attachment, type);
    request_close(&attachment->request);
}

static bool may_send(const struct attachment *attachment, size_t length) {
    return !attachment->windowed || attachment->credit >= length;
}

static void spend(struct attachment *attachment, size_t length) {
    if (attachment->windowed) attachment->credit -= length;
}

/* One DATA frame from the spool; false: there was nothing from there on. */
static bool send_spooled(struct attachment *attachment, struct stream *stream) {
    uint64_t *offset = &attachment->offsets[stream->number - 1];
    uint64_t left = stream->spool.size - *offset;
    size_t want = left < DATA_MAX ? (size_t)left : DATA_MAX;
    if (attachment->windowed && want > attachment->credit) want = (size_t)attachment->credit;
    struct writer w = answer_begin();
    write_u8(&w, stream->number);
    write_u64(&w, 0);
    write_u32(&w, 0);
    uint8_t *space = write_space(&w, want);
    size_t got = space ? spool_read(&stream->spool, offset, space, want) : 0;
    if (space && !got) {
        writer_drop(&w);
        return false;
    }
    if (space) {
        put_u32(space - 12, (uint32_t)*offset);
        put_u32(space - 8, (uint32_t)(*offset >> 32));
        put_u32(space - 4, (uint32_t)got);
        w.length -= want - got;
    }
    *offset += got;
    spend(attachment, got);
    answer_send(attachment->request.connection, &w, ANS_DATA, attachment->request.id, -1);
    return got > 0;
}

/* What there is, as far as the queue has room; and the end, when all was sent. */
static void follow_on(struct attachment *attachment) {
    struct process *process = attachment->process;
    struct connection *connection = attachment->request.connection;
    bool behind = false;
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &process->streams[i];
        while (attachment->offsets[i] < stream->spool.size && !connection_busy(connection) && !connection->dead) {
            if (!may_send(attachment, 1) || !send_spooled(attachment, stream)) break;
        }
        behind = behind || attachment->offsets[i] < stream->spool.size;
    }
    if (attachment->windowed) streams_continue(process);
    bool open = attachment->all && !process->cut && process_active(process);
    if (process->status != RUNNING && !behind && !open) finish(attachment, ANS_ENDED);
}

static void on_drained(struct request *request) {
    struct attachment *attachment = owner_of(request, struct attachment, request);
    if (attachment->type == REQ_FOLLOW) follow_on(attachment);
}

static void on_stop(struct request *request) {
    struct attachment *attachment = owner_of(request, struct attachment, request);
    struct attachment **link = &attachment->process->attachments;
    while (*link != attachment) link = &(*link)->next;
    *link = attachment->next;
    if (attachment->windowed) streams_continue(attachment->process);
    if (attachment->type == REQ_STDIN) attachment->process->pending_input -= attachment->length;
    free(attachment->data);
}

static const struct request_kind attachment_kind = {on_stop, on_drained};

struct attachment *attach(struct connection *c, uint32_t id, struct process *process, uint8_t type) {
    struct attachment *attachment = request_open(c, id, &attachment_kind, sizeof *attachment);
    if (!attachment) return NULL;
    attachment->process = process;
    attachment->type = type;
    struct attachment **link = &process->attachments;
    while (*link) link = &(*link)->next;
    *link = attachment;
    return attachment;
}

void attachments_started(struct process *process) {
    for (struct attachment *attachment = process->attachments, *next; attachment; attachment = next) {
        next = attachment->next;
        if (attachment->type != REQ_SPAWN) continue;
        if (!attachment->follow) {
            finish(attachment, ANS_PROCESS);
            continue;
        }
        send_process(attachment, ANS_PROCESS);
        attachment->type = REQ_FOLLOW;
        follow_on(attachment);
    }
}

void attachments_failed(struct process *process, int error, const char *message) {
    while (process->attachments) request_fail(&process->attachments->request, error, message);
}

void attachments_output(struct stream *stream, const uint8_t *data, size_t length) {
    for (struct attachment *attachment = stream->process->attachments, *next; attachment; attachment = next) {
        next = attachment->next;
        if (attachment->type != REQ_FOLLOW) continue;
        uint64_t *offset = &attachment->offsets[stream->number - 1];
        struct connection *connection = attachment->request.connection;
        if (*offset != stream->spool.size - length || connection_busy(connection) || !may_send(attachment, length)) {
            follow_on(attachment);
            continue;
        }
        struct writer w = answer_begin();
        write_u8(&w, stream->number);
        write_u64(&w, *offset);
        write_bytes(&w, data, length);
        *offset += length;
        spend(attachment, length);
        answer_send(connection, &w, ANS_DATA, attachment->request.id, -1);
    }
}

void attachments_ended(struct process *process) {
    for (struct attachment *attachment = process->attachments, *next; attachment; attachment = next) {
        next = attachment->next;
        if (attachment->type == REQ_WAIT) finish(attachment, ANS_ENDED);
        else if (attachment->type == REQ_FOLLOW) follow_on(attachment);
    }
}

void do_follow(struct connection *c, uint32_t id, const char *process_id, uint64_t out_offset, uint64_t err_offset, bool all,
               const struct window *window) {
    struct process *process = process_asked(c, id, process_id);
    struct attachment *attachment = process ? attach(c, id, process, REQ_FOLLOW) : NULL;
    if (!attachment) return;
    attachment->offsets[0] = out_offset;
    attachment->offsets[1] = err_offset;
    attachment->all = all;
    attachment_window(attachment, window);
    follow_on(attachment);
}

void do_window(struct connection *c, uint32_t follow_id, uint32_t bytes) {
    struct request *request = request_find(c, follow_id);
    if (!request || request->kind != &attachment_kind) return;
    struct attachment *attachment = owner_of(request, struct attachment, request);
    if (!attachment->windowed) return;
    attachment->credit += bytes;
    attachment->credited_at = now_ms();
    attachment->lapsed = false;
    if (attachment->type == REQ_FOLLOW) follow_on(attachment);
}

void do_wait(struct connection *c, uint32_t id, const char *process_id) {
    struct process *process = process_asked(c, id, process_id);
    struct attachment *attachment = process ? attach(c, id, process, REQ_WAIT) : NULL;
    if (attachment && process->status != RUNNING) finish(attachment, ANS_ENDED);
}
