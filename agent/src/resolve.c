#include "resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "text.h"

enum { NEW_DIRECTORY = 0755, FOLDER = O_PATH | O_DIRECTORY };

static bool is_proc(int fd) {
    struct statfs found;
    return fstatfs(fd, &found) == 0 && found.f_type == PROC_SUPER_MAGIC;
}

/* A process may always look at itself, whatever its files in /proc say: so we look away. */
static bool is_about_us(int fd) {
    char link[NAME_SIZE], path[NAME_SIZE], own[NAME_SIZE];
    if (!is_proc(fd)) return false;
    put_number(put_text(link, "/proc/self/fd/"), (uint64_t)fd);
    put_number(put_text(own, "/proc/"), (uint64_t)getpid());
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return true;
    path[length] = 0;
    size_t own_length = strlen(own);
    return strncmp(path, own, own_length) == 0 && (!path[own_length] || path[own_length] == '/');
}

int open_below(int folder, const char *name, int flags, mode_t bits) {
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .mode = flags & O_CREAT ? bits : 0, .resolve = RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
    /* Other kernels than Linux may not know it (gVisor): there, what was opened is all that is looked at. */
    if (fd < 0 && errno == ENOSYS) fd = openat(folder, name, flags | O_CLOEXEC, bits);
    if (fd < 0) return -1;
    if (!is_about_us(fd)) return fd;
    close(fd);
    errno = EACCES;
    return -1;
}

int open_path(const char *path, int flags, mode_t bits) { return open_below(AT_FDCWD, path, flags, bits); }

/* The last part of a path, and how long what stands before it is. */
static size_t split(const char *path, char name[NAME_MAX + 1]) {
    size_t end = strlen(path);
    while (end && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin && path[begin - 1] != '/') begin--;
    if (end - begin > NAME_MAX) return SIZE_MAX;
    memcpy(name, path + begin, end - begin);
    name[end - begin] = 0;
    return begin;
}

int spot_find(const char *path, struct spot *spot) {
    char folder[PATH_MAX];
    size_t length = split(path, spot->name);
    if (length == SIZE_MAX || strlen(path) >= sizeof folder) return ENAMETOOLONG;
    put_text(folder, path);
    if (!*spot->name || strcmp(spot->name, ".") == 0 || strcmp(spot->name, "..") == 0) put_text(spot->name, ".");
    else folder[length] = 0;
    spot->folder = open_path(folder, FOLDER, 0);
    return spot->folder < 0 ? errno : 0;
}

void spot_close(struct spot *spot) { close(spot->folder); }

int creation_error(int error, int folder) { return error == ENOENT && is_proc(folder) ? EACCES : error; }

/* One step down, made if it is missing. Answers with its descriptor, or -1 with errno. */
static int step(int folder, const char *name, mode_t bits, const struct identity *owner, bool *created) {
    *created = false;
    int fd = open_below(folder, name, FOLDER, 0);
    if (fd >= 0 || errno != ENOENT) return fd;
    if (mkdirat(folder, name, bits) < 0) {
        /* Made by somebody else in this moment; or a symlink to nowhere, which stays an error. */
        if (errno == EEXIST && (fd = open_below(folder, name, FOLDER, 0)) < 0 && errno == ENOENT) errno = EEXIST;
        if (fd < 0) errno = creation_error(errno, folder);
        return fd;
    }
    *created = true;
    if (owner && !identity_own(owner, folder, name, AT_SYMLINK_NOFOLLOW)) return -1;
    return open_below(folder, name, FOLDER | O_NOFOLLOW, 0);
}

/* The parts of a path one after the other; with `bits` the last one gets them. */
static int walk(const char *path, size_t length, mode_t bits, const struct identity *owner, bool *created) {
    char name[NAME_MAX + 1];
    int fd = open_path("/", FOLDER, 0), error = fd < 0 ? errno : 0;
    *created = false;
    for (size_t at = 0; !error && at < length;) {
        size_t part = strcspn(path + at, "/");
        if (part > length - at) part = length - at;
        if (part > NAME_MAX) error = ENAMETOOLONG;
        else if (part) {
            memcpy(name, path + at, part);
            name[part] = 0;
            bool last = strspn(path + at + part, "/") >= length - at - part;
            int below = step(fd, name, last ? bits : NEW_DIRECTORY, owner, created);
            if (below < 0) error = errno;
            /* The umask has taken some bits away. */
            else if (last && *created && bits & 022 && fchmodat(fd, name, bits, 0) < 0) error = errno;
            close(fd);
            fd = below;
        }
        at += part + 1;
    }
    if (fd >= 0) close(fd);
    return error;
}

int make_directories(const char *path, mode_t last_bits, const struct identity *owner, bool *created) {
    int error = walk(path, strlen(path), last_bits, owner, created);
    struct stat found;
    /* A file where the directory should be: something is there already. */
    if (error == ENOTDIR && lstat(path, &found) == 0) return EEXIST;
    return error;
}

int make_parents(const char *path, const struct identity *owner) {
    char name[NAME_MAX + 1];
    bool created;
    size_t length = split(path, name);
    return length == SIZE_MAX ? ENAMETOOLONG : walk(path, length, NEW_DIRECTORY, owner, &created);
}
