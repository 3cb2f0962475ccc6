/* Mounts: what the sandbox sees of the file system was decided when it was made. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fspick 433
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static char folder[] = "/tmp/probe-XXXXXX";

static const char *place(void)
{
    if (mkdtemp(folder) == NULL)
        exit(not_tried("a folder to mount on: %s", strerror(errno)));
    return folder;
}

/* The text: a type of file system, and options. */
static enum verdict mount_type(const struct call *call)
{
    char type[64] = "";
    char options[128] = "";
    const char *text = call->attempt->text;
    (void)next_word(&text, type, sizeof type);
    (void)next_word(&text, options, sizeof options);
    const char *target = place();
    long result = mount("none", target, type, 0, options[0] != '\0' ? options : NULL);
    int error = errno;
    if (result == 0)
        (void)umount2(target, MNT_DETACH);
    (void)rmdir(target);
    errno = error;
    return judge(result, "mount");
}

/* v1 groups have a program that the host's kernel starts as root when a group empties. */
static enum verdict mount_cgroup_v1(const struct call *call)
{
    static const char *const controllers[] = {"memory", "pids", "cpu", "rdma", "misc", "freezer", "none,name=probe"};
    const char *target = place();
    (void)call;
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        if (mount("none", target, "cgroup", 0, controllers[i]) == 0) {
            (void)umount2(target, MNT_DETACH);
            return not_refused("mounted the groups of %s", controllers[i]);
        }
        if (errno != EPERM && errno != ENOSYS)
            return not_refused("mount passed the permission check: %s", strerror(errno));
    }
    (void)rmdir(target);
    return refused("mount: %s", strerror(errno));
}

/* The words: major and minor number of the device that the server's folder is on. */
static enum verdict mount_host_disk(const struct call *call)
{
    static const char *const types[] = {"ext4", "xfs", "btrfs"};
    dev_t device = makedev((unsigned)number(call->words[0]), (unsigned)number(call->words[1]));
    const char *target = place();
    char node[64];
    (void)snprintf(node, sizeof node, "%s-disk", target);
    if (mknod(node, S_IFBLK | 0600, device) == 0) {
        int fd = open(node, O_RDONLY | O_CLOEXEC);
        (void)unlink(node);
        if (fd >= 0)
            return not_refused("opened the host's disk");
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (mount(node, target, types[i], MS_RDONLY, NULL) == 0)
            return not_refused("mounted the host's disk");
    (void)rmdir(target);
    return refused("mknod, mount: %s", strerror(errno));
}

/* The text: mounts that are read-only. */
static enum verdict remount_writable(const struct call *call)
{
    char path[128];
    const char *text = call->attempt->text;
    while (next_word(&text, path, sizeof path))
        if (mount("none", path, NULL, MS_REMOUNT | MS_BIND, NULL) == 0)
            return not_refused("%s is writable now", path);
    return refused("remount: %s", strerror(errno));
}

static enum verdict bind_mount(const struct call *call)
{
    const char *target = place();
    (void)call;
    long result = mount("/", target, NULL, MS_BIND | MS_REC, NULL);
    int error = errno;
    if (result == 0)
        (void)umount2(target, MNT_DETACH);
    (void)rmdir(target);
    errno = error;
    return judge(result, "mount");
}

static enum verdict unmount(const struct call *call)
{
    char path[128];
    const char *text = call->attempt->text;
    while (next_word(&text, path, sizeof path)) {
        if (umount2(path, MNT_DETACH) == 0)
            return not_refused("%s is gone", path);
        if (errno != EPERM && errno != ENOSYS)
            return not_refused("umount passed the permission check: %s", strerror(errno));
    }
    return refused("umount: %s", strerror(errno));
}

static enum verdict make_shared(const struct call *call)
{
    (void)call;
    return judge(mount("none", "/", NULL, MS_SHARED | MS_REC, NULL), "mount");
}

static enum verdict tree_copy(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_open_tree, AT_FDCWD, "/", 1 | O_CLOEXEC), "open_tree");
}

static enum verdict fs_open(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_fsopen, call->attempt->text, 0), "fsopen");
}

static enum verdict fs_pick(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_fspick, AT_FDCWD, "/", 0), "fspick");
}

static enum verdict mount_move(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0), "move_mount");
}

static enum verdict attributes_set(const struct call *call)
{
    struct {
        uint64_t set, clear, propagation, users;
    } attributes = {.set = 0, .clear = 1, .propagation = 0, .users = 0}; /* no longer read-only */
    (void)call;
    return judge(syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, &attributes, sizeof attributes), "mount_setattr");
}

static enum verdict pivot(const struct call *call)
{
    (void)call;
    return judge(syscall(SYS_pivot_root, ".", "."), "pivot_root");
}

/* Out of a root directory by way of a second one: the classic. */
static enum verdict chroot_break(const struct call *call)
{
    const char *target = place();
    (void)call;
    int top = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long result = chroot(target);
    int error = errno;
    if (result == 0 && fchdir(top) == 0) {
        for (int i = 0; i < 64; i++)
            (void)!chdir("..");
        (void)!chroot(".");
    }
    (void)rmdir(target);
    errno = error;
    return judge(result, "chroot");
}

const struct attempt mount_attempts[] = {
    {"mount-tmpfs", mount_type, "tmpfs", 0, 0},
    {"mount-proc", mount_type, "proc", 0, 0},
    {"mount-sysfs", mount_type, "sysfs", 0, 0},
    {"mount-devtmpfs", mount_type, "devtmpfs", 0, 0},
    {"mount-debugfs", mount_type, "debugfs", 0, 0},
    {"mount-tracefs", mount_type, "tracefs", 0, 0},
    {"mount-securityfs", mount_type, "securityfs", 0, 0},
    {"mount-bpf", mount_type, "bpf", 0, 0},
    {"mount-binfmt", mount_type, "binfmt_misc", 0, 0},
    {"mount-overlay", mount_type, "overlay lowerdir=/usr:/etc", 0, 0},
    {"mount-fuse", mount_type, "fuse fd=0,rootmode=40000,user_id=0,group_id=0", 0, 0},
    {"mount-nfs", mount_type, "nfs addr=127.0.0.1", 0, 0},
    {"cgroup-mount", mount_type, "cgroup2", 0, 0},
    {"cgroup-release-agent", mount_cgroup_v1, NULL, 0, 0},
    {"mount-host-disk", mount_host_disk, NULL, 2, 0},
    {"mount-writable-again", remount_writable, "/usr /lib /bin /proc/sys /sys /run/paddock/agent / /dev", 0, 0},
    {"mount-bind", bind_mount, NULL, 0, 0},
    {"mount-propagation", make_shared, NULL, 0, 0},
    {"mount-undo-masks", unmount, "/proc/kcore /proc/keys /proc/sys /proc/kallsyms /sys /proc /dev /run/paddock", 0, 0},
    {"mount-open-tree", tree_copy, NULL, 0, 0},
    {"mount-fsopen", fs_open, "ext4", 0, 0},
    {"mount-fspick", fs_pick, NULL, 0, 0},
    {"mount-move", mount_move, NULL, 0, 0},
    {"mount-setattr", attributes_set, NULL, 0, 0},
    {"mount-pivot-root", pivot, NULL, 0, 0},
    {"mount-chroot-break", chroot_break, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0},
};
