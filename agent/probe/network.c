/* Kinds of sockets, and the sandbox's own network, which others have set up for it. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

/* The text: family, type and protocol. */
static enum verdict socket_kind(const struct call *call)
{
    int family, type, protocol;
    if (sscanf(call->attempt->text, "%d %d %d", &family, &type, &protocol) != 3)
        return not_tried("not a kind: %s", call->attempt->text);
    long fd = syscall(SYS_socket, family, type, protocol);
    return judge(fd, "socket");
}

/* More than 32 bits in a register that the kernel takes 32 of. */
static enum verdict socket_wide(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_socket, 40UL | 1UL << 32, (unsigned long)SOCK_STREAM, 0UL), "socket");
}

static enum verdict socket_families(const struct call *call)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM};
    (void)call;
    for (int family = 0; family < 64; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
            continue;
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            if (socket(family, types[i] | SOCK_CLOEXEC, 0) >= 0)
                return not_refused("family %d, type %d", family, types[i]);
    }
    return refused("none of 60 families, the last: %s", strerror(errno));
}

static enum verdict socket_protocols(const struct call *call)
{
    static const int protocols[] = {33, 132, 136, 262, 47, 50, 51, 115}; /* DCCP, SCTP, UDP-Lite, MPTCP, GRE, IPsec.. */
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW, 6};
    (void)call;
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++)
        for (size_t j = 0; j < sizeof types / sizeof types[0]; j++)
            if (socket(AF_INET, types[j] | SOCK_CLOEXEC, protocols[i]) >= 0)
                return not_refused("protocol %d, type %d", protocols[i], types[j]);
    return refused("none of them, the last: %s", strerror(errno));
}

static enum verdict netlink_kinds(const struct call *call)
{
    (void)call;
    for (int protocol = 1; protocol < 32; protocol++)
        if (socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol) >= 0)
            return not_refused("netlink protocol %d", protocol);
    return refused("none but routes, the last: %s", strerror(errno));
}

/* The text: level and option; the value is 1. */
static enum verdict socket_option(const struct call *call)
{
    int level, option, value = 1;
    if (sscanf(call->attempt->text, "%d %d", &level, &option) != 2)
        return not_tried("not an option: %s", call->attempt->text);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return not_tried("socket: %s", strerror(errno));
    return judge(setsockopt(fd, level, option, &value, sizeof value), "setsockopt");
}

/* To the flags that it has. */
static enum verdict interface_flags(const struct call *call)
{
    struct ifreq request;
    (void)call;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, "lo", 3);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return not_tried("lo: %s", strerror(errno));
    return judge(ioctl(fd, SIOCSIFFLAGS, &request), "SIOCSIFFLAGS");
}

/* A netlink request without anything in it, which must fail for want of permission before it fails for want of sense.
 * The number: its type. */
static enum verdict netlink_request(const struct call *call)
{
    struct {
        struct nlmsghdr head;
        char body[64];
    } message;
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer;
    memset(&message, 0, sizeof message);
    message.head.nlmsg_len = sizeof message;
    message.head.nlmsg_type = (uint16_t)call->attempt->number;
    message.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    message.body[0] = call->attempt->number == RTM_NEWRULE ? AF_INET : AF_UNSPEC; /* rules have no common family */
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return refused("netlink: %s", strerror(errno));
    if (send(fd, &message, sizeof message, 0) < 0)
        return refused("netlink: %s", strerror(errno));
    ssize_t got = recv(fd, &answer, sizeof answer, 0);
    (void)close(fd);
    if (got < (ssize_t)(sizeof answer.head + sizeof answer.error) || answer.head.nlmsg_type != NLMSG_ERROR)
        return not_tried("no answer");
    errno = -answer.error.error;
    return judge(answer.error.error == 0 ? 0 : -1, "netlink request");
}

/* Only the sandbox's own loopback is there. */
static enum verdict host_interfaces(const struct call *call)
{
    char buffer[16384];
    (void)call;
    long got = read_some("/proc/net/dev", buffer, sizeof buffer - 1);
    if (got <= 0)
        return refused("/proc/net/dev: %s", strerror(errno));
    buffer[got] = '\0';
    for (char *line = strtok(buffer, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *colon = strchr(line, ':');
        if (colon == NULL)
            continue;
        *colon = '\0';
        if (strcmp(line + strspn(line, " "), "lo") != 0)
            return not_refused("the interface %s is here", line + strspn(line, " "));
    }
    return refused("there is only lo");
}

const struct attempt network_attempts[] = {
    {"socket-raw", socket_kind, "2 3 1", 0, 0},
    {"socket-raw-6", socket_kind, "10 3 58", 0, 0},
    {"socket-raw-any", socket_kind, "2 3 255", 0, 0},
    {"socket-packet", socket_kind, "17 3 768", 0, 0},
    {"socket-packet-old", socket_kind, "2 10 768", 0, 0},
    {"socket-vsock", socket_kind, "40 1 0", 0, 0},
    {"socket-vsock-wide", socket_wide, NULL, 0, 0},
    {"socket-crypto", socket_kind, "38 5 0", 0, 0},
    {"socket-bluetooth", socket_kind, "31 3 1", 0, 0},
    {"socket-express-data-path", socket_kind, "44 3 0", 0, 0},
    {"socket-netfilter", socket_kind, "16 3 12", 0, 0},
    {"socket-audit", socket_kind, "16 3 9", 0, 0},
    {"socket-device-events", socket_kind, "16 2 15", 0, 0},
    {"socket-ipsec", socket_kind, "16 3 6", 0, 0},
    {"socket-netlink-others", netlink_kinds, NULL, 0, 0},
    {"socket-families", socket_families, NULL, 0, 0},
    {"socket-protocols", socket_protocols, NULL, 0, 0},
    {"socket-mark", socket_option, "1 36", 0, 0},
    {"socket-transparent", socket_option, "0 19", 0, 0},
    {"socket-force-buffers", socket_option, "1 33", 0, 0},
    {"network-interface-flags", interface_flags, NULL, 0, 0},
    {"network-new-link", netlink_request, NULL, 0, RTM_NEWLINK},
    {"network-new-address", netlink_request, NULL, 0, RTM_NEWADDR},
    {"network-new-route", netlink_request, NULL, 0, RTM_NEWROUTE},
    {"network-new-rule", netlink_request, NULL, 0, RTM_NEWRULE},
    {"network-host-interfaces", host_interfaces, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
