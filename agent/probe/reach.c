/* Services that must not be reached: the host's, the cloud's, another sandbox's. They all say a secret at once. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MS = 2000, ANSWER_MS = 1500 };

/* A connected socket, or -1 and errno. */
static int dial(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int error = connect(fd, address, size) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
        socklen_t length = sizeof error;
        error = ETIMEDOUT;
        if (poll(&wait, 1, CONNECT_MS) == 1)
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0)
        return fd;
    (void)close(fd);
    errno = error;
    return -1;
}

/* What comes within a while, and whether the secret is in it. */
static bool hears(int fd, const char *secret, char *buffer, size_t size)
{
    size_t got = 0;
    for (double until = seconds_now() + ANSWER_MS / 1e3; seconds_now() < until && got + 1 < size;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
        if (poll(&wait, 1, 100) != 1)
            continue;
        ssize_t some = recv(fd, buffer + got, size - 1 - got, 0);
        if (some <= 0)
            break;
        got += (size_t)some;
        if (contains(buffer, got, secret))
            return true;
    }
    buffer[got] = '\0';
    return false;
}

static socklen_t address_of(const char *text, uint16_t port, struct sockaddr_storage *storage)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)storage;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)storage;
    memset(storage, 0, sizeof *storage);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) != 1)
        exit(not_tried("not an address: %s", text));
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    return sizeof *six;
}

static int dial_text(const char *address, uint16_t port)
{
    struct sockaddr_storage storage;
    socklen_t size = address_of(address, port, &storage);
    return dial((const struct sockaddr *)&storage, size);
}

/* The text: addresses to try; without it the first word is the address. Then the port and the secret. */
static enum verdict service(const struct call *call)
{
    char buffer[4096];
    char address[64];
    int at = call->attempt->text == NULL ? 1 : 0;
    const char *text = call->attempt->text == NULL ? call->words[0] : call->attempt->text;
    uint16_t port = (uint16_t)number(call->words[at]);
    const char *secret = turned(call->words[at + 1]);
    int error = 0;
    while (next_word(&text, address, sizeof address)) {
        int fd = dial_text(address, port);
        error = errno;
        if (fd >= 0 && hears(fd, secret, buffer, sizeof buffer))
            return not_refused("heard the secret at %s", address);
        if (fd >= 0) {
            error = ECONNRESET;
            (void)close(fd);
        }
    }
    return refused("%s", strerror(error));
}

static bool is_answer(const char *buffer)
{
    return strncmp(buffer, "HTTP/", 5) == 0 && strstr(buffer, " 403 ") == NULL && strstr(buffer, " 502 ") == NULL;
}

/* Whatever a cloud says there, if only "unauthorized": it was reached. */
static enum verdict metadata(const struct call *call)
{
    static const char *const addresses[] = {"169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254"};
    static const char question[] = "GET /latest/meta-data/ HTTP/1.0\r\nHost: 169.254.169.254\r\n\r\n";
    char buffer[4096];
    (void)call;
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        int fd = dial_text(addresses[i], 80);
        if (fd < 0)
            continue;
        (void)send(fd, question, sizeof question - 1, MSG_NOSIGNAL);
        (void)hears(fd, "\r\n\r\n", buffer, sizeof buffer);
        if (is_answer(buffer))
            return not_refused("%s answers: %.30s", addresses[i], buffer);
        (void)close(fd);
    }
    return refused("no answer from any of its addresses");
}

static int dial_proxy(void)
{
    const char *proxy = getenv("http_proxy");
    if (proxy == NULL || strncmp(proxy, "http://", 7) != 0)
        exit(not_tried("this sandbox has no proxy"));
    const char *colon = strrchr(proxy, ':');
    int fd = dial_text("127.0.0.1", (uint16_t)strtol(colon + 1, NULL, 10));
    if (fd < 0)
        exit(not_tried("the proxy does not answer: %s", strerror(errno)));
    return fd;
}

/* The text: names of what must not be reached, as they may be written in a URL. The words: port and secret. */
static enum verdict through_proxy(const struct call *call)
{
    static const struct {
        const char *before, *after;
    } forms[] = {{"CONNECT ", ""}, {"GET http://", "/"}, {"GET http://public.invalid@", "/"}};
    char request[1024];
    char buffer[4096];
    char name[128];
    int tried = 0;
    int at = call->attempt->text == NULL ? 1 : 0;
    const char *text = call->attempt->text == NULL ? call->words[0] : call->attempt->text;
    const char *secret = turned(call->words[at + 1]);
    while (next_word(&text, name, sizeof name))
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
            int fd = dial_proxy();
            (void)snprintf(request, sizeof request, "%s%s:%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                           forms[i].before, name, call->words[at], forms[i].after, name);
            (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
            if (hears(fd, secret, buffer, sizeof buffer))
                return not_refused("the proxy led to %s", name);
            (void)close(fd);
            tried++;
        }
    return refused("%d requests, the last answer: %.12s", tried, buffer);
}

static enum verdict metadata_through_proxy(const struct call *call)
{
    static const char *const targets[] = {"169.254.169.254", "[::ffff:169.254.169.254]", "2852039166",
                                          "0xa9fea9fe", "[fd00:ec2::254]"};
    char request[512];
    char buffer[4096];
    (void)call;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        int fd = dial_proxy();
        (void)snprintf(request, sizeof request, "CONNECT %s:80 HTTP/1.1\r\nHost: %s\r\n\r\n", targets[i], targets[i]);
        (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
        (void)hears(fd, "\r\n\r\n", buffer, sizeof buffer);
        if (strstr(buffer, " 200 ") != NULL)
            return not_refused("the proxy led to %s", targets[i]);
        (void)close(fd);
    }
    return refused("the proxy refused every one");
}

static int dial_unix(const char *name, bool abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (length + 1 >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path + (abstract ? 1 : 0), name, length);
    size_t size = offsetof(struct sockaddr_un, sun_path) + length + 1;
    return dial((const struct sockaddr *)&address, (socklen_t)size);
}

static enum verdict unix_service(const struct call *call)
{
    char buffer[4096];
    const char *secret = turned(call->words[1]);
    int fd = dial_unix(call->words[0], strcmp(call->attempt->text, "abstract") == 0);
    if (fd < 0)
        return refused("connect: %s", strerror(errno));
    if (hears(fd, secret, buffer, sizeof buffer))
        return not_refused("heard the secret");
    return refused("something else listens there");
}

static enum verdict runtime_sockets(const struct call *call)
{
    char path[128];
    int tried = 0;
    const char *text = call->attempt->text;
    while (next_word(&text, path, sizeof path)) {
        bool abstract = path[0] == '@';
        if (dial_unix(abstract ? path + 1 : path, abstract) >= 0)
            return not_refused("%s answers", path);
        tried++;
    }
    return refused("none of %d answers", tried);
}

/* A port that the host listens on, in the list of this sandbox. */
static enum verdict host_ports(const struct call *call)
{
    char wanted[16];
    (void)snprintf(wanted, sizeof wanted, ":%04lX ", number(call->words[0]));
    if (file_contains("/proc/net/tcp", wanted) || file_contains("/proc/net/tcp6", wanted))
        return not_refused("the host's port is listed");
    return refused("the list is the sandbox's own");
}

const struct attempt reach_attempts[] = {
    {"host-loopback", service, "127.0.0.1 127.0.0.2 0.0.0.0", 2, 0},
    {"host-loopback-6", service, "::1 :: ::ffff:127.0.0.1", 2, 0},
    {"host-address", service, NULL, 3, 0},
    {"host-gateway-guesses", service, "10.0.2.2 10.0.0.1 192.168.0.1 192.168.1.1 172.17.0.1 169.254.1.1", 2, 0},
    {"host-ports-listing", host_ports, NULL, 1, 0},
    {"host-abstract-socket", unix_service, "abstract", 2, 0},
    {"host-file-socket", unix_service, "file", 2, 0},
    {"host-runtime-sockets", runtime_sockets,
     "/var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock "
     "/run/crio/crio.sock /run/dbus/system_bus_socket /run/systemd/private /run/systemd/notify "
     "/run/systemd/journal/stdout /dev/log /run/snapd.socket /run/libvirt/libvirt-sock /run/user/1000/bus "
     "/run/user/0/bus /tmp/.X11-unix/X0 "
     "@/tmp/.X11-unix/X0 @/containerd-shim",
     0, 0},
    {"metadata-address", metadata, NULL, 0, 0},
    {"proxy-to-host-loopback", through_proxy,
     "127.0.0.1 localhost localhost. LOCALHOST 127.1 2130706433 0x7f000001 017700000001 0.0.0.0 [::1] [::] "
     "[::ffff:127.0.0.1] [0:0:0:0:0:0:0:1] 127.0.0.1%00.example.com",
     2, 0},
    {"proxy-to-host-address", through_proxy, NULL, 3, 0},
    {"proxy-to-metadata", metadata_through_proxy, NULL, 0, 0},
    {"other-sandbox-port", service, "127.0.0.1 ::1", 2, 0},
    {"other-sandbox-abstract-socket", unix_service, "abstract", 2, 0},
    {"other-sandbox-by-proxy", through_proxy, "127.0.0.1 localhost", 2, 0},
    {NULL, NULL, NULL, 0, 0},
};
