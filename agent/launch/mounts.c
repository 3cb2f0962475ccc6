#include "launch.h"

#include "inside.h"
#include "kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Everything is put together on a stage: a small tmpfs, private to this process. Names without a leading slash are
 * on the stage; `root` there becomes the sandbox's root. */

static int sandbox_users = -1; /* the user namespace for id-mapped mounts; -1 where there is none */

void stage_begin(const char *stage, int users)
{
    sandbox_users = users;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fail("stage", "private mounts");
    if (mount("paddock", stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0700") < 0)
        fail("stage", stage);
    if (chdir(stage) < 0 || mkdir("root", 0755) < 0 || mknod("void", S_IFREG | 0444, 0) < 0)
        fail("stage", "root");
}

/* A copy of a mount (`R`: with what is mounted below it), never with setuid or devices.
 * r: read-only; i: seen through the sandbox's user namespace; d: devices are allowed. */
static int clone_tree(const char *source, const char *flags, int users)
{
    unsigned int recursive = strchr(flags, 'R') != NULL ? K_AT_RECURSIVE : 0;
    int tree = k_open_tree(source, K_OPEN_TREE_CLONE | K_OPEN_TREE_CLOEXEC | recursive);
    if (tree < 0)
        return -1;
    struct k_mount_attr attr = {.set = K_ATTR_NOSUID};
    if (strchr(flags, 'r') != NULL)
        attr.set |= K_ATTR_RDONLY;
    if (strchr(flags, 'd') == NULL)
        attr.set |= K_ATTR_NODEV;
    if (users >= 0) {
        attr.set |= K_ATTR_IDMAP;
        attr.userns = (uint64_t)users;
    }
    if (k_mount_setattr(tree, recursive, &attr) < 0)
        fail("mount", source);
    return tree;
}

static void put(int tree, int target, const char *name)
{
    if (k_move_mount(tree, target) < 0)
        fail("mount", name);
    (void)close(tree);
    (void)close(target);
}

/* layer SOURCE NAME FLAGS: a directory of the host (or of the stage) under a name on the stage. */
static void layer(struct plan *plan)
{
    const char *source = plan_word(plan);
    const char *name = plan_word(plan);
    const char *flags = plan_word(plan);
    int tree = clone_tree(source, flags, strchr(flags, 'i') != NULL ? sandbox_users : -1);
    if (tree < 0)
        fail("layer", source);
    if (mkdir(name, 0700) < 0)
        fail("layer", name);
    int target = open(name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0)
        fail("layer", name);
    put(tree, target, name);
}

/* image FILE NAME: an ext4 image, on a loop device that goes away with this mount. */
static void image(struct plan *plan)
{
    const char *file = plan_word(plan);
    const char *name = plan_word(plan);
    char device[32];
    int fd = open(file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        fail("disk", file);
    /* The loop device keeps this open file, and so this lock, for as long as it lives: no image is ever mounted twice. */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        fail("disk", "it is in use");
    int loop = loop_attach(fd, device, sizeof device);
    (void)close(fd);
    if (mkdir(name, 0700) < 0)
        fail("disk", name);
    /* Its inode tables are holes, so they are zero: the kernel need not write zeros into all of them. */
    if (mount(device, name, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, "errors=remount-ro,discard,noinit_itable") < 0)
        fail("disk", file);
    (void)close(loop);
}

/* folder PATH MODE UID GID: on the stage (inside an image or a layer), unless it is there already. */
static void folder(struct plan *plan)
{
    const char *path = plan_word(plan);
    mode_t mode = (mode_t)plan_octal(plan);
    uid_t uid = (uid_t)plan_number(plan);
    gid_t gid = (gid_t)plan_number(plan);
    if (mkdir(path, mode) < 0) {
        if (errno == EEXIST)
            return;
        fail("folder", path);
    }
    if (chmod(path, mode) < 0 || lchown(path, uid, gid) < 0)
        fail("folder", path);
}

/* overlay TARGET OWNER OPTIONS: options name places on the stage. An overlay acts on its upper layer as whoever mounted
 * it, so that must be an id which the (id-mapped) layer knows: OWNER, not the host's root. */
static void overlay(struct plan *plan)
{
    const char *target = plan_word(plan);
    uint64_t owner = plan_number(plan);
    const char *options = plan_word(plan);
    char path[64];
    int fd = inside_open(target, O_PATH | O_DIRECTORY);
    if (fd < 0)
        fail("overlay", target);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    act_as(owner);
    if (mount("overlay", path, "overlay", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0)
        fail("overlay", options);
    act_as(0);
    (void)close(fd);
    if (strcmp(target, "/") == 0) {
        inside_begin(); /* the root is another one now */
        inside_belongs_to(owner);
    }
}

/* bind SOURCE TARGET FLAGS, and mapped SOURCE TARGET FLAGS UID GID OWNER: the files of UID and GID are OWNER's inside.
 * t: it need not exist; f: the target is a file. A missing target is made. */
static void bind(struct plan *plan, int mapped)
{
    const char *source = plan_word(plan);
    const char *target = plan_word(plan);
    const char *flags = plan_word(plan);
    int users = strchr(flags, 'i') != NULL ? sandbox_users : -1;
    if (mapped) {
        struct id_map user = {.inside = plan_number(plan), .outside = 0, .count = 1};
        struct id_map group = {.inside = plan_number(plan), .outside = 0, .count = 1};
        user.outside = group.outside = plan_number(plan);
        users = user_namespace(&user, &group);
    }
    int tree = clone_tree(source, flags, users);
    if (mapped)
        (void)close(users);
    if (tree < 0) {
        if (strchr(flags, 't') != NULL && errno == ENOENT)
            return;
        fail("bind", source);
    }
    put(tree, inside_make(target, strchr(flags, 'f') == NULL), target);
}

static void mount_inside(const char *type, const char *target, unsigned long flags, const char *options)
{
    char path[64];
    int fd = inside_make(target, 1);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (mount(type, path, type, flags | MS_NOSUID, options) < 0)
        fail(type, target);
    (void)close(fd);
}

/* readonly TARGET: what is there already, but read-only. */
static void readonly(const char *target)
{
    char path[64];
    int fd = inside_open(target, O_PATH);
    if (fd < 0) {
        if (errno == ENOENT)
            return;
        fail("readonly", target);
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int tree = clone_tree(path, "Rr", -1);
    if (tree < 0)
        fail("readonly", target);
    put(tree, fd, target);
}

/* seal TARGET: nothing more is made or changed on this mount; what is mounted below it stays as it is. */
static void seal(const char *target)
{
    struct k_mount_attr attr = {.set = K_ATTR_RDONLY};
    int fd = inside_open(target, O_PATH);
    if (fd < 0 || k_mount_setattr(fd, 0, &attr) < 0)
        fail("seal", target);
    (void)close(fd);
}

/* mask TARGET: an empty, read-only thing in its place; where there is nothing there is nothing to hide. */
static void mask(const char *target)
{
    struct stat status;
    int fd = inside_open(target, O_PATH);
    if (fd < 0) {
        if (errno == ENOENT)
            return;
        fail("mask", target);
    }
    if (fstat(fd, &status) < 0)
        fail("mask", target);
    if (S_ISDIR(status.st_mode)) {
        (void)close(fd);
        mount_inside("tmpfs", target, MS_RDONLY | MS_NODEV | MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555");
        return;
    }
    int tree = clone_tree("void", "r", -1);
    if (tree < 0)
        fail("mask", target);
    put(tree, fd, target);
}

/* say TARGET TEXT: a read-only file of this one line in its place; where there is nothing, nothing is said. */
static void say(const char *target, const char *text)
{
    static const char place[] = "said";
    int fd = inside_open(target, O_PATH);
    if (fd < 0) {
        if (errno == ENOENT)
            return;
        fail("say", target);
    }
    int file = open(place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file < 0 || fchmod(file, 0444) < 0 || dprintf(file, "%s\n", text) < 0 || close(file) < 0)
        fail("say", target);
    int tree = clone_tree(place, "r", -1);
    if (tree < 0)
        fail("say", target);
    put(tree, fd, target);
}

/* part PATH NAME: a directory of the sandbox's root under a name on the stage, too. */
static void part(struct plan *plan)
{
    const char *path = plan_word(plan);
    const char *name = plan_word(plan);
    char source[64];
    int fd = inside_open(path, O_PATH | O_DIRECTORY);
    if (fd < 0)
        fail("part", path);
    (void)snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    int tree = clone_tree(source, "-", -1);
    if (tree < 0 || mkdir(name, 0700) < 0)
        fail("part", path);
    (void)close(fd);
    int target = open(name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0)
        fail("part", name);
    put(tree, target, name);
}

/* wrap NAME: all that was put together becomes one directory of a new root, which has nothing else in it yet. */
static void wrap(const char *name)
{
    char target[64];
    (void)snprintf(target, sizeof target, "outer/%s", name);
    if (mkdir("outer", 0700) < 0 || mount("paddock", "outer", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") < 0 ||
        mkdir(target, 0755) < 0)
        fail("wrap", name);
    inside_end();
    if (mount("root", target, NULL, MS_MOVE, NULL) < 0 || mount("outer", "root", NULL, MS_MOVE, NULL) < 0)
        fail("wrap", name);
    inside_begin();
    inside_belongs_to(0);
}

int run_mount_verb(const char *verb, struct plan *plan)
{
    if (strcmp(verb, "layer") == 0)
        layer(plan);
    else if (strcmp(verb, "part") == 0)
        part(plan);
    else if (strcmp(verb, "wrap") == 0)
        wrap(plan_word(plan));
    else if (strcmp(verb, "image") == 0)
        image(plan);
    else if (strcmp(verb, "folder") == 0)
        folder(plan);
    else if (strcmp(verb, "overlay") == 0)
        overlay(plan);
    else if (strcmp(verb, "bind") == 0)
        bind(plan, 0);
    else if (strcmp(verb, "mapped") == 0)
        bind(plan, 1);
    else if (strcmp(verb, "mount") == 0) {
        const char *type = plan_word(plan);
        const char *target = plan_word(plan);
        mount_inside(type, target, MS_NODEV | MS_NOEXEC, plan_word(plan));
    } else if (strcmp(verb, "tmpfs") == 0) {
        const char *target = plan_word(plan);
        mount_inside("tmpfs", target, MS_NODEV, plan_word(plan));
    } else if (strcmp(verb, "devpts") == 0) {
        const char *target = plan_word(plan); /* without nodev: terminals are devices */
        mount_inside("devpts", target, MS_NOEXEC, plan_word(plan));
    } else if (strcmp(verb, "readonly") == 0)
        readonly(plan_word(plan));
    else if (strcmp(verb, "seal") == 0)
        seal(plan_word(plan));
    else if (strcmp(verb, "mask") == 0)
        mask(plan_word(plan));
    else if (strcmp(verb, "say") == 0) {
        const char *target = plan_word(plan);
        say(target, plan_word(plan));
    } else if (strcmp(verb, "link") == 0) {
        const char *text = plan_word(plan);
        inside_link(text, plan_word(plan));
    } else
        return 0;
    return 1;
}

/* The new root takes the place of the old one, and the old one, with the stage, goes. */
void stage_end(void)
{
    if (chdir("root") < 0)
        fail("root", "chdir");
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        fail("root", "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        fail("root", "umount");
    if (chdir("/") < 0)
        fail("root", "chdir /");
    inside_end();
}
