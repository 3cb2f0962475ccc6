/* STAT, MKDIR, MOVE, REMOVE and CHMOD. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "actions.h"
#include "entry.h"

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

bool is_root_directory(const char *path) { return path[strspn(path, "/")] == 0; }

int creation_error(int error, int directory) {
    struct statfs found;
    if (error != ENOENT || fstatfs(directory, &found) < 0) return error;
    return found.f_type == PROC_SUPER_MAGIC ? EACCES : error;
}

/* The directory above `name`, which is a part of `path`. */
static int missing_error(char *path, char *name) {
    char first = *name;
    *name = 0;
    int parent = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *name = first;
    int error = creation_error(ENOENT, parent);
    if (parent >= 0) close(parent);
    return error;
}

/* One directory of a path, the last part of which is `name`. */
static int make_one(char *path, char *name, mode_t bits, bool *created) {
    struct stat found;
    *created = false;
    if (stat(path, &found) == 0) return S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
    if (errno != ENOENT) return errno;
    if (mkdir(path, bits) == 0) {
        *created = true;
        return 0;
    }
    /* Made by somebody else in this moment; or a symlink to nowhere. */
    if (errno == EEXIST) return stat(path, &found) == 0 && S_ISDIR(found.st_mode) ? 0 : EEXIST;
    return errno == ENOENT ? missing_error(path, name) : errno;
}

int make_directories(char *path, uint32_t last_mode, bool *created) {
    mode_t bits = last_mode == MODE_UNCHANGED ? NEW_DIRECTORY : last_mode & 07777;
    char *at = path + strspn(path, "/");
    int error = 0;
    *created = false;
    while (!error && *at) {
        char *end = at + strcspn(at, "/");
        bool last = !end[strspn(end, "/")];
        char slash = *end;
        *end = 0;
        error = make_one(path, at, last ? bits : NEW_DIRECTORY, created);
        if (!error && last && *created && bits & 022 && chmod(path, bits) < 0) error = errno;
        if (last && error == ENOTDIR) error = EEXIST;
        *end = slash;
        at = end + strspn(end, "/");
    }
    return error;
}

bool make_parents(const char *path, int *error) {
    const char *end = path + strlen(path);
    while (end > path && end[-1] == '/') end--;
    while (end > path && end[-1] != '/') end--;
    *error = 0;
    if (end <= path + 1) return false;
    char *parent = strndup(path, (size_t)(end - path));
    bool created;
    *error = parent ? make_directories(parent, MODE_UNCHANGED, &created) : ENOMEM;
    if (*error == EEXIST) *error = ENOTDIR; /* there is a file where a directory should be */
    free(parent);
    return true;
}

/* The answer to everything that ends with how a path looks now. Leaves the identity. */
static void answer_entry(struct connection *c, uint32_t id, const char *path, int flags, const struct identity *identity) {
    struct labels labels = {0};
    struct writer w = answer_begin();
    int error = entry_write_at(&w, path, AT_FDCWD, path, flags, identity, &labels);
    identity_leave(identity);
    if (!error) {
        answer_send(c, &w, ANS_ENTRY, id, -1);
        return;
    }
    writer_drop(&w);
    answer_path_error(c, id, error);
}

void do_stat(struct connection *c, uint32_t id, const char *user, const char *path, bool follow) {
    struct identity identity;
    if (!path_begin(c, id, user, path, &identity)) return;
    answer_entry(c, id, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, &identity);
}

void do_mkdir(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t mode_bits) {
    struct identity identity;
    bool created = false;
    if (!path_begin(c, id, user, path, &identity)) return;
    char *copy = strdup(path);
    int error = copy ? make_directories(copy, mode_bits, &created) : ENOMEM;
    free(copy);
    identity_leave(&identity);
    if (error) {
        answer_path_error(c, id, error);
        return;
    }
    struct writer w = answer_begin();
    write_u8(&w, created);
    answer_send(c, &w, ANS_MADE, id, -1);
}

void do_chmod(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t mode_bits) {
    struct identity identity;
    if (!path_begin(c, id, user, path, &identity)) return;
    if (chmod(path, mode_bits & 07777) == 0) {
        answer_entry(c, id, path, 0, &identity);
        return;
    }
    int error = errno;
    identity_leave(&identity);
    answer_path_error(c, id, error);
}

void do_move(struct connection *c, uint32_t id, const char *user, const char *source, const char *destination) {
    struct identity identity;
    if (*destination != '/') {
        answer_error(c, id, EINVAL, "the path is not absolute");
        return;
    }
    if (!path_begin(c, id, user, source, &identity)) return;
    int error = 0;
    if (is_root_directory(source) || is_root_directory(destination)) error = EPERM;
    else if (rename(source, destination) < 0) error = errno;
    if (!error) {
        answer_entry(c, id, destination, AT_SYMLINK_NOFOLLOW, &identity);
        return;
    }
    identity_leave(&identity);
    struct job job = {.run = job_move, .identity = &identity, .path = source, .other = destination};
    if (error == EXDEV) worker_start(c, id, &job);
    else answer_path_error(c, id, error);
}

void do_remove(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive) {
    struct identity identity;
    if (!path_begin(c, id, user, path, &identity)) return;
    int error = 0;
    if (is_root_directory(path)) error = EPERM;
    else if (unlink(path) < 0) error = errno;
    if (error == EISDIR) error = rmdir(path) < 0 ? errno : 0;
    if (error == EBUSY) error = EPERM; /* something is mounted there: it belongs to the sandbox, not to its user */
    identity_leave(&identity);
    struct job job = {.run = job_remove, .identity = &identity, .path = path};
    if (error == ENOTEMPTY && recursive) worker_start(c, id, &job);
    else if (error) answer_path_error(c, id, error);
    else answer_ok(c, id);
}
