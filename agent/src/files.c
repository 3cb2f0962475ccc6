/* STAT, RESOLVE, MKDIR, MOVE, REMOVE and CHMOD. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actions.h"
#include "entry.h"
#include "resolve.h"
#include "text.h"

enum { NEW_DIRECTORY = 0755 };

void answer_path_error(struct connection *c, uint32_t id, int error) { answer_error(c, id, error, ""); }

bool path_begin(struct connection *c, uint32_t id, const char *user, const char *path, struct identity *identity) {
    int error = 0;
    const char *why = "";
    if (*path != '/') {
        error = EINVAL;
        why = "the path is not absolute";
    } else if ((error = identity_resolve(user, identity)) || (error = identity_enter(identity))) {
        why = "there is no such user in this sandbox";
    }
    if (error) answer_error(c, id, error, why);
    return !error;
}

bool owner_find(struct connection *c, uint32_t id, const char *owner, struct identity *identity) {
    int error = owner ? identity_resolve(owner, identity) : 0;
    if (error) answer_error(c, id, error, "there is no such user in this sandbox");
    return !error;
}

bool is_root_directory(const char *path) { return path[strspn(path, "/")] == 0; }

/* The answer to everything that ends with how something looks now. Leaves the identity. */
static void answer_entry(struct connection *c, uint32_t id, const char *path, const struct spot *spot, int flags,
                         const struct identity *identity) {
    struct labels labels = {0};
    struct writer w = answer_begin();
    int error = entry_write_at(&w, path, spot->folder, spot->name, flags, identity, &labels);
    identity_leave(identity);
    if (!error) {
        answer_send(c, &w, ANS_ENTRY, id, -1);
        return;
    }
    writer_drop(&w);
    answer_path_error(c, id, error);
}

/* Of what a path stands for, behind symlinks. */
static void answer_followed(struct connection *c, uint32_t id, const char *path, int fd, const struct identity *identity) {
    struct spot itself = {.folder = fd, .name = ""};
    answer_entry(c, id, path, &itself, AT_EMPTY_PATH, identity);
    close(fd);
}

void do_stat(struct connection *c, uint32_t id, const char *user, const char *path, bool follow) {
    struct identity identity;
    struct spot spot;
    if (!path_begin(c, id, user, path, &identity)) return;
    int fd = follow ? open_path(path, O_PATH, 0) : -1;
    int error = follow ? (fd < 0 ? errno : 0) : spot_find(path, &spot);
    if (error) {
        identity_leave(&identity);
        answer_path_error(c, id, error);
    } else if (follow) {
        answer_followed(c, id, path, fd, &identity);
    } else {
        answer_entry(c, id, path, &spot, AT_SYMLINK_NOFOLLOW, &identity);
        spot_close(&spot);
    }
}

/* The name that a file has now, by every symlink on the way. 0 or errno. */
static int real_path(int fd, char path[PATH_MAX]) {
    char itself[NAME_SIZE];
    put_number(put_text(itself, "/proc/self/fd/"), (uint64_t)fd);
    ssize_t length = readlink(itself, path, PATH_MAX - 1);
    if (length < 0) return errno;
    path[length] = 0;
    return *path == '/' ? 0 : ENOENT;
}

void do_resolve(struct connection *c, uint32_t id, const char *user, const char *path) {
    struct identity identity;
    char real[PATH_MAX];
    if (!path_begin(c, id, user, path, &identity)) return;
    int fd = open_path(path, O_PATH, 0);
    int error = fd < 0 ? errno : real_path(fd, real);
    if (!error) {
        answer_followed(c, id, real, fd, &identity);
        return;
    }
    identity_leave(&identity);
    if (fd >= 0) close(fd);
    answer_path_error(c, id, error);
}

void do_mkdir(struct connection *c, uint32_t id, const char *user, const char *owner, const char *path, uint32_t bits) {
    struct identity identity, owning;
    bool created;
    if (!owner_find(c, id, owner, &owning)) return;
    if (!path_begin(c, id, user, path, &identity)) return;
    int error = make_directories(path, bits == MODE_UNCHANGED ? NEW_DIRECTORY : bits & 07777, owner ? &owning : NULL, &created);
    identity_leave(&identity);
    if (error) {
        answer_path_error(c, id, error);
        return;
    }
    struct writer w = answer_begin();
    write_u8(&w, created);
    answer_send(c, &w, ANS_MADE, id, -1);
}

void do_chmod(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t bits) {
    struct identity identity;
    char itself[NAME_SIZE];
    if (!path_begin(c, id, user, path, &identity)) return;
    int fd = open_path(path, O_PATH, 0), error = fd < 0 ? errno : 0;
    if (!error) put_number(put_text(itself, "/proc/self/fd/"), (uint64_t)fd);
    if (!error && chmod(itself, bits & 07777) < 0) error = errno;
    if (!error) {
        answer_followed(c, id, path, fd, &identity);
        return;
    }
    identity_leave(&identity);
    if (fd >= 0) close(fd);
    answer_path_error(c, id, error);
}

/* With both directories held. Answers, unless it takes a copy: EXDEV. */
static int move(struct connection *c, uint32_t id, const char *source, const char *destination, const struct identity *identity) {
    struct spot from, to;
    int error = spot_find(source, &from);
    if (error) return error;
    error = spot_find(destination, &to);
    if (!error) {
        error = renameat(from.folder, from.name, to.folder, to.name) < 0 ? errno : 0;
        if (!error) answer_entry(c, id, destination, &to, AT_SYMLINK_NOFOLLOW, identity);
        spot_close(&to);
    }
    spot_close(&from);
    return error;
}

void do_move(struct connection *c, uint32_t id, const char *user, const char *source, const char *destination) {
    struct identity identity;
    if (*destination != '/') {
        answer_error(c, id, EINVAL, "the path is not absolute");
        return;
    }
    if (!path_begin(c, id, user, source, &identity)) return;
    bool root = is_root_directory(source) || is_root_directory(destination);
    int error = root ? EPERM : move(c, id, source, destination, &identity);
    if (!error) return;
    identity_leave(&identity);
    struct job job = {.run = job_move, .identity = &identity, .path = source, .other = destination};
    if (error == EXDEV) worker_start(c, id, &job);
    else answer_path_error(c, id, error);
}

static int remove_one(const char *path) {
    struct spot spot;
    int error = spot_find(path, &spot);
    if (error) return error;
    if (unlinkat(spot.folder, spot.name, 0) < 0) error = errno;
    if (error == EISDIR) error = unlinkat(spot.folder, spot.name, AT_REMOVEDIR) < 0 ? errno : 0;
    spot_close(&spot);
    /* Something is mounted there: it belongs to the sandbox, not to its user. */
    return error == EBUSY ? EPERM : error;
}

void do_remove(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive) {
    struct identity identity;
    if (!path_begin(c, id, user, path, &identity)) return;
    int error = is_root_directory(path) ? EPERM : remove_one(path);
    identity_leave(&identity);
    struct job job = {.run = job_remove, .identity = &identity, .path = path};
    if (error == ENOTEMPTY && recursive) worker_start(c, id, &job);
    else if (error) answer_path_error(c, id, error);
    else answer_ok(c, id);
}
