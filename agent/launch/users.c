#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_proc(pid_t pid, const char *name, const char *text)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        fail("users", path);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail("users", path);
    (void)close(fd);
}

static void write_map(pid_t pid, const char *name, const struct id_map *map)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%llu %llu %llu", (unsigned long long)map->inside,
                   (unsigned long long)map->outside, (unsigned long long)map->count);
    write_proc(pid, name, text);
}

void map_ids(pid_t pid, const struct id_map *users, const struct id_map *groups)
{
    if (geteuid() != 0)
        write_proc(pid, "setgroups", "deny"); /* the kernel's price for a gid map without privilege */
    write_map(pid, "uid_map", users);
    write_map(pid, "gid_map", groups);
}

/* Who makes a user namespace is charged for what is used in it (watches, queues, signals), so that must not be the
 * host's root, whom all sandboxes would share: it is the first id of the range itself. */
static _Noreturn void make_namespace(uint64_t user, uint64_t group, int told, int wait)
{
    char byte;
    if (setgroups(0, NULL) < 0 || setresgid((gid_t)group, (gid_t)group, (gid_t)group) < 0 ||
        setresuid((uid_t)user, (uid_t)user, (uid_t)user) < 0 || unshare(CLONE_NEWUSER) < 0)
        fail("users", "user namespace");
    /* Who it is to that /proc, which may belong to another pid namespace than the one that this child is in. */
    char name[16];
    ssize_t length = readlink("/proc/self", name, sizeof name);
    if (length > 0 && write(told, name, (size_t)length) == length)
        (void)!read(wait, &byte, 1); /* until the parent has looked, and closes its end */
    _exit(0);
}

/* A user namespace that no process is in yet: a child makes it, waits to be looked at, and goes. */
int user_namespace(const struct id_map *users, const struct id_map *groups)
{
    int made[2];
    int looked[2];
    char name[17];
    if (pipe2(made, O_CLOEXEC) < 0 || pipe2(looked, O_CLOEXEC) < 0)
        fail("users", "pipe");
    pid_t pid = fork();
    if (pid < 0)
        fail("users", "fork");
    if (pid == 0) {
        (void)close(looked[1]);
        make_namespace(users->outside, groups->outside, made[1], looked[0]);
    }
    (void)close(made[1]);
    (void)close(looked[0]);
    ssize_t length = read(made[0], name, sizeof name - 1);
    if (length < 1)
        _exit(1); /* the child has said why */
    (void)close(made[0]);
    name[length] = '\0';
    pid_t seen = (pid_t)strtol(name, NULL, 10);
    map_ids(seen, users, groups);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)seen);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail("users", path);
    (void)close(looked[1]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return fd;
}

/* Root of the user namespace that this process is in: its ids must not be the host's any more. */
void become_root(void)
{
    if (setgroups(0, NULL) < 0 && errno != EPERM) /* refused where setgroups is denied: there are none then */
        fail("users", "setgroups");
    if (setresgid(0, 0, 0) < 0)
        fail("users", "setresgid");
    if (setresuid(0, 0, 0) < 0)
        fail("users", "setresuid");
}

/* File access as another id with all of our capabilities: leaving id 0 drops those that concern files. */
void act_as(uint64_t id)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &head, sets) < 0)
        fail("users", "capget");
    (void)setfsgid((gid_t)id);
    (void)setfsuid((uid_t)id);
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        sets[i].effective = sets[i].permitted;
    if (syscall(SYS_capset, &head, sets) < 0)
        fail("users", "capset");
}
