#include "relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ports.h"
#include "text.h"

enum { HEAD_ROOM = 4, TURNS = 16 };

static struct relay *relays;
static unsigned relay_count;

static void on_outer(struct source *source, uint32_t events);
static void on_inner(struct source *source, uint32_t events);

static void relay_end(struct relay *relay) {
    if (relay->waiting) relay_left_door(relay);
    loop_close(&relay->outer);
    loop_close(&relay->inner);
    if (relay->previous) relay->previous->next = relay->next;
    else relays = relay->next;
    if (relay->next) relay->next->previous = relay->previous;
    relay_count--;
    free(relay->out);
    relay->out = NULL;
    loop_free(relay);
}

struct relay *relay_open(int outer, const uint8_t *early, size_t early_length) {
    struct relay *relay = relay_count < MAX_RELAYS && early_length <= RELAY_ROOM ? calloc(1, sizeof *relay) : NULL;
    if (!relay || !loop_add(&relay->outer, outer, EPOLLIN, on_outer)) {
        close(outer);
        free(relay);
        return NULL;
    }
    relay->inner.fd = -1;
    if (early_length) memcpy(relay->in, early, early_length);
    relay->in_length = early_length;
    relay->next = relays;
    if (relays) relays->previous = relay;
    relays = relay;
    relay_count++;
    return relay;
}

/* To the outside: what it does not take at once is kept, and nothing more is read from inside until it is gone. */
static bool send_out(struct relay *relay, const uint8_t *data, size_t length) {
    size_t sent = 0;
    while (!relay->out && sent < length) {
        ssize_t put = send(relay->outer.fd, data + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno != EAGAIN) return false;
        if (put < 0) break;
        sent += (size_t)put;
    }
    if (sent == length) return true;
    size_t left = relay->out_length - relay->out_at;
    uint8_t *kept = malloc(left + length - sent);
    if (!kept) return false;
    if (left) memcpy(kept, relay->out + relay->out_at, left);
    memcpy(kept + left, data + sent, length - sent);
    free(relay->out);
    relay->out = kept;
    relay->out_at = 0;
    relay->out_length = left + length - sent;
    return true;
}

static bool flush_out(struct relay *relay) {
    while (relay->out) {
        ssize_t put = send(relay->outer.fd, relay->out + relay->out_at, relay->out_length - relay->out_at,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0) return errno == EAGAIN || errno == EINTR;
        relay->out_at += (size_t)put;
        if (relay->out_at < relay->out_length) continue;
        free(relay->out);
        relay->out = NULL;
        relay->out_at = relay->out_length = 0;
    }
    return true;
}

static bool send_message(struct relay *relay, uint8_t opcode, const void *data, size_t length) {
    uint8_t frame[HEAD_ROOM + WS_SMALL];
    size_t head = ws_head_write(frame, opcode, length);
    if (length) memcpy(frame + head, data, length);
    return send_out(relay, frame, head + length);
}

static void consume(struct relay *relay, size_t count) {
    relay->in_length -= count;
    memmove(relay->in, relay->in + count, relay->in_length);
}

/* A whole frame that is no data: at most 125 bytes, all of them here. */
static bool take_small(struct relay *relay) {
    size_t length = (size_t)relay->head.length;
    ws_unmask(relay->in, length, relay->head.mask, 0);
    bool good = true;
    switch (relay->head.opcode) {
        case WS_PING:
            good = relay->out || send_message(relay, WS_PONG, relay->in, length); /* busy is answer enough */
            break;
        case WS_TEXT:
            good = length == 3 && memcmp(relay->in, "end", 3) == 0 && !relay->end_received;
            relay->end_received = true;
            break;
        case WS_CLOSE:
            good = send_message(relay, WS_CLOSE, relay->in, length < 2 ? 0 : 2);
            relay->closing = true;
            break;
        default: break;
    }
    consume(relay, length);
    relay->in_frame = false;
    return good;
}

/* Unmasked data at the front goes inside. What nobody reads there is dropped: he may still have something to say. */
static void pass_data(struct relay *relay) {
    size_t sent = relay->deaf ? relay->plain : 0;
    if (!relay->deaf && (relay->inner.fd < 0 || relay->dialing)) return;
    while (sent < relay->plain) {
        ssize_t put = send(relay->inner.fd, relay->in + sent, relay->plain - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) break;
        relay->deaf = put < 0;
        sent = relay->deaf ? relay->plain : sent + (size_t)put;
    }
    relay->plain -= sent;
    consume(relay, sent);
}

/* Takes the next step with what has come; false when there is none, or (with `*good` false) it breaks the rules. */
static bool step(struct relay *relay, bool *good) {
    if (relay->plain || relay->closing) return false;
    if (!relay->in_frame) {
        int size = ws_head_read(relay->in, relay->in_length, &relay->head);
        *good = size >= 0;
        if (size <= 0) return false;
        consume(relay, (size_t)size);
        relay->in_frame = true;
        relay->taken = 0;
    }
    bool data = relay->head.opcode <= WS_BINARY && relay->head.opcode != WS_TEXT;
    if (!data) {
        if (relay->in_length < relay->head.length) return false;
        *good = take_small(relay);
        return *good;
    }
    uint64_t rest = relay->head.length - relay->taken;
    size_t here = rest < relay->in_length ? (size_t)rest : relay->in_length;
    if (here && relay->end_received) {
        *good = false;
        return false;
    }
    ws_unmask(relay->in, here, relay->head.mask, relay->taken);
    relay->taken += here;
    relay->plain = here;
    relay->in_frame = relay->taken < relay->head.length;
    pass_data(relay);
    return here || !rest;
}

static bool take_in(struct relay *relay) {
    bool good = true;
    pass_data(relay);
    while (good && step(relay, &good)) continue;
    bool started = relay->inner.fd >= 0 && !relay->dialing;
    if (good && relay->end_received && !relay->end_done && !relay->plain && started) {
        shutdown(relay->inner.fd, SHUT_WR);
        relay->end_done = true;
    }
    return good;
}

static bool read_outer(struct relay *relay) {
    for (int i = 0; i < TURNS && relay->in_length < RELAY_ROOM && !relay->closing; i++) {
        ssize_t got = read(relay->outer.fd, relay->in + relay->in_length, RELAY_ROOM - relay->in_length);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        if (got == 0) return false;
        relay->in_length += (size_t)got;
        if (!take_in(relay)) return false;
    }
    return true;
}

/* read() and not recvmsg(): descriptors that the agent's own connection sends would be closed by the kernel. */
static bool read_inner(struct relay *relay, bool all) {
    for (int i = 0; (all || (i < TURNS && !relay->out)) && !relay->end_sent; i++) {
        uint8_t *room = scratch();
        ssize_t got = read(relay->inner.fd, room + HEAD_ROOM, SCRATCH_SIZE - HEAD_ROOM);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got <= 0) {
            relay->end_sent = true;
            return send_message(relay, WS_TEXT, "end", 3);
        }
        uint8_t head[HEAD_ROOM];
        size_t size = ws_head_write(head, WS_BINARY, (size_t)got);
        memcpy(room + HEAD_ROOM - size, head, size);
        if (!send_out(relay, room + HEAD_ROOM - size, size + (size_t)got)) return false;
    }
    return true;
}

static void settle(struct relay *relay, bool good) {
    if (!good || (relay->closing && !relay->out)) {
        relay_end(relay);
        return;
    }
    bool room = relay->in_length < RELAY_ROOM && !relay->closing;
    loop_change(&relay->outer, (room ? EPOLLIN : 0) | (relay->out ? EPOLLOUT : 0));
    if (relay->inner.fd < 0 || relay->dialing) return;
    uint32_t wanted = relay->plain ? EPOLLOUT : 0;
    if (!relay->out && !relay->end_sent && !relay->closing) wanted |= EPOLLIN;
    loop_change(&relay->inner, wanted);
}

static void on_outer(struct source *source, uint32_t events) {
    struct relay *relay = owner_of(source, struct relay, outer);
    bool good = !(events & EPOLLERR);
    if (good && events & EPOLLOUT) good = flush_out(relay);
    if (good && events & (EPOLLIN | EPOLLHUP)) good = read_outer(relay);
    if (events & EPOLLHUP && !(events & EPOLLIN)) good = false;
    settle(relay, good);
}

static void on_inner(struct source *source, uint32_t events) {
    struct relay *relay = owner_of(source, struct relay, inner);
    bool good = true;
    if (events & EPOLLOUT) good = take_in(relay);
    bool over = events & (EPOLLHUP | EPOLLERR);
    /* A hang-up is reported for ever: what the kernel still holds is taken at once, and then there is no inside. */
    if (good && (over || events & EPOLLIN)) good = read_inner(relay, over);
    if (good && over) {
        loop_close(&relay->inner);
        relay->deaf = relay->end_done = true;
        good = take_in(relay);
    }
    settle(relay, good);
}

void relay_start(struct relay *relay, int inner) {
    relay->dialing = relay->waiting = false;
    bool good = relay->inner.fd >= 0 || loop_add(&relay->inner, inner, EPOLLIN, on_inner);
    if (!good) close(inner);
    relay->inner.ready = on_inner;
    settle(relay, good && send_message(relay, WS_TEXT, "open", 4) && take_in(relay));
}

void relay_waits(struct relay *relay) { settle(relay, send_message(relay, WS_TEXT, "waiting", 7)); }

void relay_refuse(struct relay *relay, int error) {
    char text[NAME_SIZE];
    size_t length = (size_t)(put_number(put_text(text, "error "), (uint64_t)error) - text);
    relay->dialing = relay->waiting = false;
    loop_close(&relay->inner);
    bool good = send_message(relay, WS_TEXT, text, length) && send_message(relay, WS_CLOSE, "\x03\xe8", 2);
    relay->closing = true;
    settle(relay, good);
}

static void dial_on(struct relay *relay);

static void dial_failed(struct relay *relay, int error) {
    loop_close(&relay->inner);
    bool none = error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENETUNREACH;
    if (relay->second) {
        relay_refuse(relay, none ? ECONNREFUSED : error);
        return;
    }
    relay->second = true;
    dial_on(relay);
}

static void on_dialing(struct source *source, uint32_t events) {
    (void)events;
    struct relay *relay = owner_of(source, struct relay, inner);
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) error = errno;
    if (error) dial_failed(relay, error);
    else relay_start(relay, source->fd);
}

static void dial_on(struct relay *relay) {
    int fd = port_connect(relay->port, relay->second);
    if (fd >= 0 && loop_add(&relay->inner, fd, EPOLLOUT, on_dialing)) return;
    int error = errno;
    if (fd >= 0) close(fd);
    dial_failed(relay, error);
}

void relay_dial(struct relay *relay, uint16_t port) {
    relay->port = port;
    relay->dialing = true;
    dial_on(relay);
}
