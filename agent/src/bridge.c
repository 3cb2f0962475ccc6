/* Whoever comes here may be anybody: small bounds, no timers (the oldest visitor makes room), and first the token. */
#include "bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "connection.h"
#include "handshake.h"
#include "ports.h"
#include "relay.h"
#include "text.h"

enum { BACKLOG = 128, MAX_VISITORS = 64, MAX_DOORS = 64, LOST_MS = 120000 };

struct visitor {
    struct source source;
    struct visitor *next; /* newest first */
    size_t length;
    char head[HANDSHAKE_MAX];
};

/* A port inside that somebody outside listens on: those who wait for the next connection, oldest first. */
struct door {
    struct source source;
    struct relay *first, *last;
    uint16_t port;
    uint8_t kind;
};

static struct source listener = {.fd = -1};
static struct visitor *visitors;
static unsigned visitor_count;
static const char *token_path;
static struct door doors[MAX_DOORS];
static unsigned door_count;

static void forget(struct visitor *visitor) {
    struct visitor **link = &visitors;
    while (*link != visitor) link = &(*link)->next;
    *link = visitor->next;
    visitor_count--;
    loop_free(visitor);
}

static void send_away(struct visitor *visitor, const char *status) {
    char text[128];
    char *end = put_text(text, "HTTP/1.1 ");
    end = put_text(put_text(end, status), "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    send(visitor->source.fd, text, (size_t)(end - text), MSG_NOSIGNAL | MSG_DONTWAIT);
    loop_close(&visitor->source);
    forget(visitor);
}

static bool token_fits(const char *shown) {
    char token[TOKEN_MAX + 1] = {0};
    int fd = open(token_path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd < 0 ? -1 : read(fd, token, TOKEN_MAX);
    if (fd >= 0) close(fd);
    while (got > 0 && (token[got - 1] == '\n' || token[got - 1] == '\r')) token[--got] = 0;
    if (got < TOKEN_MIN || strlen(shown) != (size_t)got) return false;
    uint8_t differs = 0; /* every character is looked at, so that the time tells nothing */
    for (ssize_t i = 0; i < got; i++) differs |= (uint8_t)(token[i] ^ shown[i]);
    return !differs;
}

static void on_door(struct source *source, uint32_t events) {
    (void)events;
    struct door *door = owner_of(source, struct door, source);
    while (door->first) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) break;
        struct relay *relay = door->first;
        door->first = relay->queued;
        if (!door->first) door->last = NULL;
        relay_start(relay, fd);
    }
    if (!door->first) loop_change(&door->source, 0);
}

void relay_left_door(struct relay *relay) {
    for (struct door *door = doors; door < doors + door_count; door++) {
        if (door->port != relay->port || door->kind != relay->kind) continue;
        struct relay **link = &door->first, *last = NULL;
        while (*link && *link != relay) {
            last = *link;
            link = &(*link)->queued;
        }
        if (!*link) continue;
        *link = relay->queued;
        if (door->last == relay) door->last = last;
        if (!door->first) loop_change(&door->source, 0);
    }
}

static struct door *door_to(uint16_t port, uint8_t kind) {
    for (struct door *door = doors; door < doors + door_count; door++) {
        if (door->port == port && door->kind == kind) return door;
    }
    int fd = port_listener(port, kind);
    errno = fd >= 0 && door_count == MAX_DOORS ? EAGAIN : errno;
    if (fd < 0 || door_count == MAX_DOORS) return NULL;
    struct door *door = &doors[door_count];
    *door = (struct door){.port = port, .kind = kind};
    if (!loop_add(&door->source, fd, 0, on_door)) return NULL;
    door_count++;
    return door;
}

static void wait_at_door(struct relay *relay, uint16_t port, uint8_t kind) {
    struct door *door = door_to(port, kind);
    if (!door) {
        relay_refuse(relay, errno);
        return;
    }
    relay->port = port;
    relay->kind = kind;
    relay->waiting = true;
    relay->queued = NULL;
    if (door->last) door->last->queued = relay;
    else door->first = relay;
    door->last = relay;
    loop_change(&door->source, EPOLLIN);
    relay_waits(relay);
}

static void link_up(struct relay *relay) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        relay_refuse(relay, errno);
        return;
    }
    connection_open(pair[1]);
    relay_start(relay, pair[0]);
}

static void let_in(struct visitor *visitor, const struct handshake *shake, size_t head_length) {
    char text[160], accept[WS_ACCEPT_SIZE];
    ws_accept(shake->key, accept);
    char *end = put_text(text, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                               "Sec-WebSocket-Accept: ");
    end = put_text(put_text(end, accept), "\r\n\r\n");
    int fd = visitor->source.fd;
    if (send(fd, text, (size_t)(end - text), MSG_NOSIGNAL | MSG_DONTWAIT) != end - text) {
        loop_close(&visitor->source);
        forget(visitor);
        return;
    }
    loop_remove(&visitor->source);
    struct relay *relay =
        relay_open(fd, (const uint8_t *)visitor->head + head_length, visitor->length - head_length);
    forget(visitor);
    if (!relay) return;
    if (shake->purpose == PURPOSE_LINK) link_up(relay);
    else if (shake->purpose == PURPOSE_DIAL) relay_dial(relay, shake->port);
    else wait_at_door(relay, shake->port, shake->kind);
}

static void on_visitor(struct source *source, uint32_t events) {
    struct visitor *visitor = owner_of(source, struct visitor, source);
    ssize_t got = read(source->fd, visitor->head + visitor->length, sizeof visitor->head - visitor->length);
    if (got < 0 && (errno == EAGAIN || errno == EINTR) && !(events & (EPOLLHUP | EPOLLERR))) return;
    if (got <= 0) {
        loop_close(source);
        forget(visitor);
        return;
    }
    visitor->length += (size_t)got;
    struct handshake shake;
    size_t head_length = 0;
    switch (handshake_read(visitor->head, visitor->length, &shake, &head_length)) {
        case HANDSHAKE_PART:
            if (visitor->length == sizeof visitor->head) send_away(visitor, "431 Request Header Fields Too Large");
            break;
        case HANDSHAKE_BAD: send_away(visitor, "400 Bad Request"); break;
        case HANDSHAKE_WHOLE:
            if (!token_fits(shake.token)) send_away(visitor, "403 Forbidden");
            else if (shake.purpose == PURPOSE_NONE) send_away(visitor, "404 Not Found");
            else if (!shake.upgrade) send_away(visitor, "426 Upgrade Required");
            else let_in(visitor, &shake, head_length);
            break;
    }
}

static void on_listener(struct source *source, uint32_t events) {
    (void)events;
    int one = 1, lost = LOST_MS;
    for (int fd; (fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        if (visitor_count == MAX_VISITORS) {
            struct visitor *oldest = visitors;
            while (oldest->next) oldest = oldest->next;
            loop_close(&oldest->source);
            forget(oldest);
        }
        struct visitor *visitor = calloc(1, sizeof *visitor);
        if (!visitor || !loop_add(&visitor->source, fd, EPOLLIN, on_visitor)) {
            close(fd);
            free(visitor);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost, sizeof lost);
        visitor->next = visitors;
        visitors = visitor;
        visitor_count++;
    }
}

int bridge_door(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    put_text(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    unlink(path);
    mode_t before = umask(0177);
    bool done = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0;
    umask(before);
    if (done) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool bridge_listen(int fd, const char *token) {
    token_path = token;
    return loop_add(&listener, fd, EPOLLIN, on_listener);
}
