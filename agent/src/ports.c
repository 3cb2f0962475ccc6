/* DIAL and LISTEN: sockets made inside, handed out. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actions.h"
#include "ports.h"

enum { MAX_LISTENERS = 64, BACKLOG = 512 };

struct dialing {
    struct request request;
    struct source source;
    uint16_t port;
    bool second; /* 127.0.0.1 did not answer: now ::1 */
};

static struct {
    uint16_t port;
    uint8_t kind;
    int fd;
} listeners[MAX_LISTENERS];
static unsigned listener_count;

static void dial_on(struct dialing *dialing);

static socklen_t local_address(struct sockaddr_storage *address, bool version6, uint16_t port) {
    memset(address, 0, sizeof *address);
    if (version6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        six->sin6_addr = in6addr_loopback;
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *four;
}

static void on_stop(struct request *request) { loop_close(&owner_of(request, struct dialing, request)->source); }

static void connected(struct dialing *dialing) {
    struct connection *connection = dialing->request.connection;
    uint32_t id = dialing->request.id;
    int fd = dialing->source.fd;
    loop_remove(&dialing->source);
    request_close(&dialing->request);
    struct writer w = answer_begin();
    answer_send(connection, &w, ANS_SOCKET, id, fd);
}

static void refused(struct dialing *dialing, int error) {
    loop_close(&dialing->source);
    if (dialing->second) {
        /* Without IPv6 the first answer was the true one. */
        bool none = error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENETUNREACH;
        request_fail(&dialing->request, none ? ECONNREFUSED : error, "nothing answers on this port");
        return;
    }
    dialing->second = true;
    dial_on(dialing);
}

static void on_dialing(struct source *source, uint32_t events) {
    (void)events;
    struct dialing *dialing = owner_of(source, struct dialing, source);
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) error = errno;
    if (error) refused(dialing, error);
    else connected(dialing);
}

int port_connect(uint16_t port, bool version6) {
    struct sockaddr_storage address;
    socklen_t length = local_address(&address, version6, port);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) == 0 || errno == EINPROGRESS) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void dial_on(struct dialing *dialing) {
    int fd = port_connect(dialing->port, dialing->second);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0 && loop_add(&dialing->source, fd, EPOLLOUT, on_dialing)) return;
    if (fd >= 0) {
        error = errno;
        close(fd);
    }
    refused(dialing, error);
}

void do_dial(struct connection *c, uint32_t id, uint16_t port) {
    static const struct request_kind kind = {on_stop, NULL};
    struct dialing *dialing = request_open(c, id, &kind, sizeof *dialing);
    if (!dialing) return;
    dialing->port = port;
    dialing->source.fd = -1;
    dial_on(dialing);
}

int port_listener(uint16_t port, uint8_t kind) {
    for (unsigned i = 0; i < listener_count; i++) {
        if (listeners[i].port == port && listeners[i].kind == kind) return listeners[i].fd;
    }
    if (listener_count == MAX_LISTENERS) {
        errno = EAGAIN;
        return -1;
    }
    struct sockaddr_storage address;
    socklen_t length = local_address(&address, kind & 1, port);
    bool stream = !(kind & 2);
    int one = 1, fd = socket(address.ss_family, (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if ((stream && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0) ||
        bind(fd, (struct sockaddr *)&address, length) < 0 || (stream && listen(fd, BACKLOG) < 0)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    listeners[listener_count].port = port;
    listeners[listener_count].kind = kind;
    listeners[listener_count++].fd = fd;
    return fd;
}

void do_listen(struct connection *c, uint32_t id, uint16_t port, uint8_t kind) {
    int fd = port_listener(port, kind);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) {
        answer_error(c, id, errno, "this port cannot be listened on");
        return;
    }
    struct writer w = answer_begin();
    answer_send(c, &w, ANS_SOCKET, id, copy);
}
