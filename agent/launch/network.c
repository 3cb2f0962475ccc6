#include "launch.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LO = 1 /* the first interface of every network namespace */ };

void loopback_up(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("network", "socket");
    struct ifreq request;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, "lo", 3);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        fail("network", "lo");
    (void)close(fd);
}

static void local_default(int fd, unsigned char family)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct rtattr attribute;
        int interface;
    } request;
    memset(&request, 0, sizeof request);
    request.head.nlmsg_len = sizeof request;
    request.head.nlmsg_type = RTM_NEWROUTE;
    request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
    request.route.rtm_family = family;
    request.route.rtm_table = RT_TABLE_LOCAL;
    request.route.rtm_protocol = RTPROT_STATIC;
    request.route.rtm_scope = RT_SCOPE_HOST;
    request.route.rtm_type = RTN_LOCAL;
    request.attribute.rta_type = RTA_OIF;
    request.attribute.rta_len = RTA_LENGTH(sizeof(int));
    request.interface = LO;
    if (send(fd, &request, sizeof request, 0) < 0)
        fail("network", "route");
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer;
    if (recv(fd, &answer, sizeof answer, 0) < (ssize_t)(sizeof answer.head + sizeof answer.error))
        fail("network", "route");
    int error = answer.head.nlmsg_type == NLMSG_ERROR ? -answer.error.error : 0;
    if (error != 0 && !(family == AF_INET6 && (error == EOPNOTSUPP || error == EAFNOSUPPORT)))
        fail_with(error, "network", "route");
}

/* Every address is this namespace's own: nothing leaves it, and a rule can hand any connection to one listener. */
void route_everything_home(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        fail("network", "netlink");
    local_default(fd, AF_INET);
    local_default(fd, AF_INET6);
    (void)close(fd);
}

/* The host's nft, run while this process may still change its network namespace. */
void load_rules(const char *program, const char *rules)
{
    int pair[2];
    if (pipe(pair) < 0)
        fail("network", "pipe");
    pid_t pid = fork();
    if (pid < 0)
        fail("network", "fork");
    if (pid == 0) {
        char *const arguments[] = {(char *)"nft", (char *)"-f", (char *)"-", NULL};
        char *const environment[] = {NULL};
        (void)dup2(pair[0], 0);
        (void)close(pair[0]);
        (void)close(pair[1]);
        (void)execve(program, arguments, environment);
        _exit(127);
    }
    (void)close(pair[0]);
    size_t length = strlen(rules);
    if (write(pair[1], rules, length) != (ssize_t)length)
        fail("network", "rules");
    (void)close(pair[1]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("network", "wait");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_with(EPROTO, "network", "nft refused the rules");
}
