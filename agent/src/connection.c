#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "actions.h"

enum { READ_SIZE = 4096, READS_AT_ONCE = 16, SENDS_AT_ONCE = 64, IOVECS = 16, KEEP_ROOM = 1 << 14 };

struct outgoing {
    struct outgoing *next;
    uint8_t *data;
    size_t length, sent;
    int fd;
};

static struct source listener = {.fd = -1};
static struct connection *connections;
static unsigned connection_count;

static void on_connection(struct source *source, uint32_t events);
static void flush(struct connection *connection, bool from_loop);

static void on_listener(struct source *source, uint32_t events) {
    (void)events;
    for (int fd; (fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) connection_open(fd);
}

bool connections_listen(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return false;
    return loop_add(&listener, fd, EPOLLIN, on_listener);
}

void connection_open(int fd) {
    struct connection *connection = connection_count < MAX_CONNECTIONS ? calloc(1, sizeof *connection) : NULL;
    if (!connection || !loop_add(&connection->source, fd, EPOLLIN, on_connection)) {
        close(fd);
        free(connection);
        return;
    }
    connection->next = connections;
    connections = connection;
    connection_count++;
}

void connection_end(struct connection *connection) {
    while (connection->requests) request_close(connection->requests);
    tokens_drop(connection);
    loop_close(&connection->source);
    for (struct outgoing *out = connection->out_first, *next; out; out = next) {
        next = out->next;
        if (out->fd >= 0) close(out->fd);
        free(out->data);
        free(out);
    }
    struct connection **link = &connections;
    while (*link != connection) link = &(*link)->next;
    *link = connection->next;
    connection_count--;
    free(connection->in);
    loop_free(connection);
}

void connection_break(struct connection *connection) {
    connection->dead = true;
    /* The loop then reports a hang-up, and that ends it. */
    if (connection->source.fd >= 0) shutdown(connection->source.fd, SHUT_RDWR);
}

bool connection_busy(const struct connection *connection) { return connection->out_bytes >= QUEUE_HIGH; }

static void update_events(struct connection *connection) {
    uint32_t events = connection->out_first ? EPOLLOUT : 0;
    if (connection->out_bytes < QUEUE_FULL) events |= EPOLLIN;
    loop_change(&connection->source, events);
}

/* Whoever does not take answers may not ask for more. */
static bool can_take(const struct connection *connection) {
    return !connection->dead && connection->out_bytes < QUEUE_FULL;
}

static bool make_room(struct connection *connection, size_t room) {
    if (connection->in_room >= room) return true;
    uint8_t *grown = realloc(connection->in, room);
    if (!grown) return false;
    connection->in = grown;
    connection->in_room = room;
    return true;
}

/* Handles the whole frames at the front of the buffer, and keeps the rest; all of it, when answers are not taken. */
static bool take_frames(struct connection *connection) {
    size_t at = 0;
    bool good = true;
    while (good && can_take(connection) && connection->in_length - at >= HEADER_SIZE) {
        uint8_t *head = connection->in + at;
        uint32_t length = get_u32(head), id = get_u32(head + 8);
        if (length > PAYLOAD_MAX || head[5] || head[6] || head[7] || !id) return false;
        if (connection->in_length - at < HEADER_SIZE + length) break;
        good = request_handle(connection, head[4], id, head + HEADER_SIZE, length);
        at += HEADER_SIZE + length;
    }
    if (at) memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
    if (!connection->in_length && connection->in_room > KEEP_ROOM) {
        free(connection->in);
        connection->in = NULL;
        connection->in_room = 0;
    }
    return good;
}

/* How much the buffer should hold: what the frame at its front says, or a little. */
static size_t wanted_room(const struct connection *connection) {
    if (connection->in_length < HEADER_SIZE) return READ_SIZE;
    size_t frame = HEADER_SIZE + (size_t)get_u32(connection->in);
    return frame > READ_SIZE ? frame : READ_SIZE;
}

/* read() and not recvmsg(): descriptors that somebody sends us are then closed by the kernel. */
static bool receive(struct connection *connection) {
    if (!take_frames(connection)) return false;
    for (int i = 0; i < READS_AT_ONCE && can_take(connection); i++) {
        if (!make_room(connection, wanted_room(connection))) return false;
        size_t room = connection->in_room - connection->in_length;
        ssize_t got = read(connection->source.fd, connection->in + connection->in_length, room);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        if (got == 0) return false;
        connection->in_length += (size_t)got;
        if (!take_frames(connection)) return false;
        if ((size_t)got < room) break;
    }
    return true;
}

static void on_connection(struct source *source, uint32_t events) {
    struct connection *connection = owner_of(source, struct connection, source);
    if (events & EPOLLOUT) flush(connection, true);
    if (events & (EPOLLIN | EPOLLOUT) && can_take(connection) && !receive(connection)) connection->dead = true;
    if (connection->dead || (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN))) connection_end(connection);
}

static ssize_t send_with_descriptor(int to, struct outgoing *out) {
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {out->data, out->length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &out->fd, sizeof(int));
    ssize_t sent = sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        close(out->fd);
        out->fd = -1;
    }
    return sent;
}

/* As many frames as fit in one call; a frame with a descriptor goes alone, so that it travels with its first byte. */
static ssize_t send_some(struct connection *connection) {
    struct outgoing *first = connection->out_first;
    if (first->fd >= 0) return send_with_descriptor(connection->source.fd, first);
    struct iovec parts[IOVECS];
    uint8_t count = 0; /* fits what either libc calls a number of parts */
    for (struct outgoing *out = first; out && out->fd < 0 && count < IOVECS; out = out->next) {
        parts[count++] = (struct iovec){out->data + out->sent, out->length - out->sent};
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    return sendmsg(connection->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void account(struct connection *connection, size_t sent) {
    connection->out_bytes -= sent;
    while (sent || (connection->out_first && connection->out_first->sent == connection->out_first->length)) {
        struct outgoing *out = connection->out_first;
        size_t part = out->length - out->sent < sent ? out->length - out->sent : sent;
        out->sent += part;
        sent -= part;
        if (out->sent < out->length) break;
        connection->out_first = out->next;
        if (!out->next) connection->out_last = NULL;
        free(out->data);
        free(out);
    }
}

/* Those who waited for room go on. Only ever called from the loop, so that nobody is called while he is sending. */
static void tell_drained(struct connection *connection) {
    connection->draining = true;
    for (struct request *request = connection->requests, *next; request; request = next) {
        next = request->next;
        if (connection_busy(connection)) break;
        if (request->kind->drained) request->kind->drained(request);
    }
    connection->draining = false;
}

static void flush(struct connection *connection, bool from_loop) {
    for (int i = 0; i < SENDS_AT_ONCE && connection->out_first && !connection->dead; i++) {
        ssize_t sent = send_some(connection);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            if (errno != EAGAIN && errno != ETOOMANYREFS) connection_break(connection);
            break;
        }
        account(connection, (size_t)sent);
        if (!connection->out_first && from_loop) tell_drained(connection);
    }
    update_events(connection);
}

static void enqueue(struct connection *connection, uint8_t *data, size_t length, int fd) {
    struct outgoing *out = malloc(sizeof *out);
    if (!out || connection->dead) {
        if (!out) connection_break(connection);
        if (fd >= 0) close(fd);
        free(data);
        free(out);
        return;
    }
    *out = (struct outgoing){NULL, data, length, 0, fd};
    bool was_empty = !connection->out_first;
    if (was_empty) connection->out_first = out;
    else connection->out_last->next = out;
    connection->out_last = out;
    connection->out_bytes += length;
    if (was_empty && !connection->draining) flush(connection, false);
    else update_events(connection);
}

struct writer answer_begin(void) {
    struct writer w = {0};
    write_space(&w, HEADER_SIZE);
    return w;
}

void answer_send(struct connection *connection, struct writer *w, uint8_t type, uint32_t id, int fd) {
    if (w->failed || w->length - HEADER_SIZE > PAYLOAD_MAX) {
        writer_drop(w);
        if (fd >= 0) close(fd);
        connection_break(connection); /* without memory for an answer, a broken link is the only true one */
        return;
    }
    put_u32(w->data, (uint32_t)(w->length - HEADER_SIZE));
    w->data[4] = type;
    w->data[5] = fd >= 0;
    w->data[6] = w->data[7] = 0;
    put_u32(w->data + 8, id);
    enqueue(connection, w->data, w->length, fd);
    *w = (struct writer){0};
}

void answer_ok(struct connection *connection, uint32_t id) {
    struct writer w = answer_begin();
    answer_send(connection, &w, ANS_OK, id, -1);
}

void answer_error(struct connection *connection, uint32_t id, int error, const char *message) {
    struct writer w = answer_begin();
    write_u32(&w, (uint32_t)error);
    write_text(&w, message);
    answer_send(connection, &w, ANS_ERROR, id, -1);
}

void answer_raw(struct connection *connection, const uint8_t *data, size_t length) {
    struct writer w = {0};
    write_raw(&w, data, length);
    if (w.failed) {
        writer_drop(&w);
        connection_break(connection);
        return;
    }
    enqueue(connection, w.data, length, -1);
}
