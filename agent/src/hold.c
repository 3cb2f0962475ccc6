/* Followers that hold a process up rather than lose its output: as long as they go on taking it, and not for ever. */
#include "actions.h"
#include "process.h"

void attachment_window(struct attachment *attachment, const struct window *window) {
    attachment->windowed = window->wanted;
    attachment->credit = window->bytes;
    attachment->hold_ms = window->hold_ms;
    attachment->credited_at = now_ms();
}

static bool holds(const struct attachment *attachment) {
    bool follows = attachment->type == REQ_FOLLOW || (attachment->type == REQ_SPAWN && attachment->follow);
    return follows && attachment->windowed && attachment->hold_ms && !attachment->lapsed;
}

uint64_t attachments_room(const struct stream *stream) {
    uint64_t room = SCRATCH_SIZE;
    for (const struct attachment *attachment = stream->process->attachments; attachment; attachment = attachment->next) {
        if (!holds(attachment)) continue;
        uint64_t left = spool_room(&stream->spool, attachment->offsets[stream->number - 1]);
        if (left < room) room = left;
    }
    return room;
}

/* When it has held up this stream for too long; -1: it does not. */
static int64_t lapses_at(const struct attachment *attachment, const struct stream *stream) {
    if (!holds(attachment)) return -1;
    if (spool_room(&stream->spool, attachment->offsets[stream->number - 1])) return -1;
    bool taken = attachment->credited_at > stream->held_since;
    return (taken ? attachment->credited_at : stream->held_since) + (int64_t)attachment->hold_ms;
}

int64_t holds_patience(const struct process *process, int64_t now) {
    int64_t patience = -1;
    for (int i = 0; i < 2; i++) {
        if (!process->streams[i].held_since) continue;
        for (struct attachment *attachment = process->attachments; attachment; attachment = attachment->next) {
            int64_t until = lapses_at(attachment, &process->streams[i]);
            if (until < 0) continue;
            int64_t left = until > now ? until - now : 0;
            if (patience < 0 || left < patience) patience = left;
        }
    }
    return patience;
}

void holds_check(struct process *process, int64_t now) {
    for (int i = 0; i < 2; i++) {
        if (!process->streams[i].held_since) continue;
        for (struct attachment *attachment = process->attachments; attachment; attachment = attachment->next) {
            int64_t until = lapses_at(attachment, &process->streams[i]);
            if (until >= 0 && until <= now) attachment->lapsed = true;
        }
    }
    streams_continue(process);
}
