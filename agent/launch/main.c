#include "inside.h"
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>


/* Not the cgroup namespace: it is made when the child is in its group, so that this is all that it sees. */
#define INTO_GROUP 0x200000000ULL /* CLONE_INTO_CGROUP, which older headers do not have */
enum { MAX_ARGUMENTS = 32, CLOSE_ON_EXEC = 4 /* CLOSE_RANGE_CLOEXEC, which older headers do not have */ };
enum { NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };

/* Whose ids the sandbox has. `range`: ids of its own, given by a privileged server; the namespaces then belong to the
 * host's user namespace, and not even the sandbox's root may change them. `single`: the id of an ordinary user. */
struct users {
    int range;
    int namespace;
    uint64_t outside;
};

/* Low numbers have a meaning by now or later; what we open ourselves must not land on one of them. */
static void reserve_low_numbers(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
            fail("start", "/dev/null");
    } while (fd <= STATE_FD);
    (void)close(fd);
}

/* Of v1, by `tasks`: for one thread that moves itself the kernel need not stop every fork of the machine, which by
 * `cgroup.procs` takes it some ten milliseconds. */
static void join_cgroup(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        fail("cgroup", path);
    (void)close(fd);
}

static struct users choose_users(struct plan *plan)
{
    struct users users = {.range = 0, .namespace = -1, .outside = 0};
    users.range = strcmp(plan_word(plan), "range") == 0;
    users.outside = plan_number(plan);
    struct id_map map = {.inside = 0, .outside = users.outside, .count = plan_number(plan)};
    if (users.range)
        users.namespace = user_namespace(&map, &map);
    return users;
}

/* What is done before the namespaces exist; ends at the word `enter`. */
static struct users before(struct plan *plan, int *group)
{
    struct users users = {.range = 0, .namespace = -1, .outside = 0};
    *group = -1;
    for (;;) {
        const char *verb = plan_word(plan);
        if (strcmp(verb, "enter") == 0)
            return users;
        if (strcmp(verb, "cgroup") == 0)
            join_cgroup(plan_word(plan));
        else if (strcmp(verb, "group") == 0) {
            const char *path = plan_word(plan);
            *group = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (*group < 0)
                fail("cgroup", path);
        } else if (strcmp(verb, "limit") == 0)
            limit(plan);
        else if (strcmp(verb, "users") == 0)
            users = choose_users(plan);
        else
            fail_with(EINVAL, "plan", verb);
    }
}

static void keep_state(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        fail("state", path);
    if (dup2(fd, STATE_FD) < 0)
        fail("state", "dup2");
    (void)close(fd);
}

/* The server has written down who we are by the time it says go. If it died before that, nobody would ever end us. */
static void wait_for_go(void)
{
    char word[8];
    ssize_t got;
    tell("ready", 0);
    do
        got = recv(CONTROL_FD, word, sizeof word, 0);
    while (got < 0 && errno == EINTR);
    if (got != 2 || memcmp(word, "go", 2) != 0)
        _exit(1);
}

static _Noreturn void become_agent(const char *path, const char *mode)
{
    char listen_fd[8];
    char state_fd[8];
    char filter_fd[8];
    (void)snprintf(listen_fd, sizeof listen_fd, "%d", LISTEN_FD);
    (void)snprintf(state_fd, sizeof state_fd, "%d", STATE_FD);
    (void)snprintf(filter_fd, sizeof filter_fd, "%d", FILTER_FD);
    const char *const arguments[] = {"paddock-agent", "serve",  "--listen", listen_fd, "--state",
                                     state_fd,        "--mode", mode,       "--filter", filter_fd, NULL};
    char *const environment[] = {(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    wait_for_go();
    (void)execve(path, (char *const *)arguments, environment);
    fail("agent", path);
}

/* What is left of the plan is the command of a program that brings a kernel of its own, and the agent in it. None of
 * our descriptors shall get into that, and nothing that it starts shall be more than it is. */
static _Noreturn void become_kernel(struct plan *plan)
{
    const char *arguments[MAX_ARGUMENTS + 1];
    size_t count = 0;
    for (const char *word = plan_next(plan); word != NULL; word = plan_next(plan)) {
        if (count == MAX_ARGUMENTS)
            fail_with(E2BIG, "kernel", word);
        arguments[count++] = word;
    }
    if (count == 0)
        fail_with(EINVAL, "kernel", "no program");
    arguments[count] = NULL;
    char *const environment[] = {(char *)"PATH=/", NULL};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail("kernel", "no new privileges");
    wait_for_go();
    if (syscall(SYS_close_range, CONTROL_FD, ~0U, CLOSE_ON_EXEC) < 0)
        fail("kernel", "close_range");
    (void)execve(arguments[0], (char *const *)arguments, environment);
    fail("kernel", arguments[0]);
}

/* From here on this process has the sandbox's root and its users, and nothing of the host's. */
static void settle(const struct users *users)
{
    stage_end();
    if (users->range && setns(users->namespace, CLONE_NEWUSER) < 0)
        fail("users", "setns");
    become_root();
}

static void after(struct plan *plan, const struct users *users)
{
    stage_begin(plan_word(plan), users->namespace);
    inside_begin();
    for (const char *verb = plan_next(plan); verb != NULL; verb = plan_next(plan)) {
        if (run_mount_verb(verb, plan))
            continue;
        if (strcmp(verb, "state") == 0)
            keep_state(plan_word(plan));
        else if (strcmp(verb, "hostname") == 0) {
            const char *name = plan_word(plan);
            if (sethostname(name, strlen(name)) < 0)
                fail("hostname", name);
        } else if (strcmp(verb, "limit") == 0)
            limit(plan);
        else if (strcmp(verb, "nice") == 0)
            nice_all(plan);
        else if (strcmp(verb, "allowance") == 0)
            allowance(plan);
        else if (strcmp(verb, "routes") == 0)
            route_everything_home();
        else if (strcmp(verb, "rules") == 0) {
            const char *program = plan_word(plan);
            load_rules(program, plan_word(plan));
        } else if (strcmp(verb, "done") == 0) {
            tell("ready", 0); /* a trial: everything up to here can be done on this machine */
            _exit(0);
        } else if (strcmp(verb, "agent") == 0) {
            const char *path = plan_word(plan);
            settle(users);
            become_agent(path, users->range ? "range" : "single");
        } else if (strcmp(verb, "kernel") == 0) {
            settle(users);
            become_kernel(plan);
        } else
            fail_with(EINVAL, "plan", verb);
    }
    fail_with(EINVAL, "plan", "no agent");
}

/* A child in new namespaces and, of v2, in a group of its own from its first moment. */
static pid_t clone_into(unsigned long long flags, int group)
{
    struct clone_args arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.flags = group < 0 ? flags : flags | INTO_GROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = group < 0 ? 0 : (unsigned long long)group;
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "watch") == 0)
        watch();
    struct plan plan;
    int gate[2];
    int group;
    (void)setsid();
    (void)umask(022);
    reserve_low_numbers();
    plan_read(&plan, PLAN_FD);
    struct users users = before(&plan, &group);
    if (pipe2(gate, O_CLOEXEC) < 0)
        fail("enter", "pipe");
    pid_t pid = clone_into((unsigned long long)(NAMESPACES | (users.range ? 0 : CLONE_NEWUSER)), group);
    if (pid < 0)
        fail("enter", "namespaces");
    if (pid == 0) {
        char byte;
        (void)close(gate[1]);
        if (read(gate[0], &byte, 1) != 1)
            _exit(1); /* the launcher failed, and has said why */
        (void)close(gate[0]);
        if (unshare(CLONE_NEWCGROUP) < 0)
            fail("enter", "cgroup namespace");
        loopback_up();
        after(&plan, &users);
    }
    tell("pid", (uint64_t)pid);
    if (!users.range) {
        struct id_map user = {.inside = 0, .outside = users.outside, .count = 1};
        struct id_map own = {.inside = 0, .outside = getegid(), .count = 1};
        map_ids(pid, &user, &own);
    }
    if (write(gate[1], "", 1) != 1)
        fail("enter", "gate");
    return 0;
}
