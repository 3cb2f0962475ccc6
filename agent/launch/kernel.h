/* The mount calls and constants that older C libraries do not know. */
#ifndef PADDOCK_LAUNCH_KERNEL_H
#define PADDOCK_LAUNCH_KERNEL_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

enum {
    K_OPEN_TREE_CLONE = 1,
    K_OPEN_TREE_CLOEXEC = O_CLOEXEC,
    K_AT_RECURSIVE = 0x8000,
    K_AT_EMPTY_PATH = 0x1000,
    K_MOVE_F_EMPTY_PATH = 0x4,
    K_MOVE_T_EMPTY_PATH = 0x40,
    K_ATTR_RDONLY = 0x1,
    K_ATTR_NOSUID = 0x2,
    K_ATTR_NODEV = 0x4,
    K_ATTR_IDMAP = 0x00100000,
    K_RESOLVE_NO_MAGICLINKS = 0x02,
    K_RESOLVE_IN_ROOT = 0x10,
};

struct k_mount_attr {
    uint64_t set;
    uint64_t clear;
    uint64_t propagation;
    uint64_t userns;
};

struct k_open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

static inline int k_open_tree(const char *path, unsigned int flags)
{
    return (int)syscall(SYS_open_tree, AT_FDCWD, path, flags);
}

static inline int k_move_mount(int from, int to)
{
    return (int)syscall(SYS_move_mount, from, "", to, "", K_MOVE_F_EMPTY_PATH | K_MOVE_T_EMPTY_PATH);
}

static inline int k_mount_setattr(int fd, unsigned int flags, struct k_mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, fd, "", flags | K_AT_EMPTY_PATH, attr, sizeof *attr);
}

static inline int k_openat2(int directory, const char *path, struct k_open_how *how)
{
    return (int)syscall(SYS_openat2, directory, path, how, sizeof *how);
}

#endif
