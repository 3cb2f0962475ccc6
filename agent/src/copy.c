/* MOVE between file systems: a copy beside the destination, put in place, and then the source goes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"
#include "entry.h"
#include "files.h"
#include "text.h"

/* Directories below the source, as paths from it; those that were copied stay, to get their times at the end. */
struct folders {
    char **paths;
    size_t count, room;
};

struct copying {
    const char *source, *destination;
    struct folders folders;
};

static int folders_add(struct folders *folders, const char *path) {
    if (folders->count == folders->room) {
        size_t room = folders->room ? folders->room * 2 : 16;
        char **grown = realloc(folders->paths, room * sizeof *grown);
        if (!grown) return ENOMEM;
        folders->paths = grown;
        folders->room = room;
    }
    folders->paths[folders->count] = strdup(path);
    return folders->paths[folders->count] && ++folders->count ? 0 : ENOMEM;
}

static int join(char full[PATH_MAX], const char *first, const char *second) {
    if (strlen(first) + strlen(second) + 2 > PATH_MAX) return ENAMETOOLONG;
    put_text(put_text(put_text(full, first), *second ? "/" : ""), second);
    return 0;
}

/* Owner, permissions and times; the owner only as far as we may. */
static int copy_looks(const char *path, const struct stat *found) {
    struct timespec times[2] = {found->st_atim, found->st_mtim};
    if (lchown(path, found->st_uid, found->st_gid) < 0 && errno != EPERM && errno != EINVAL) return errno;
    if (!S_ISLNK(found->st_mode) && chmod(path, found->st_mode & 07777) < 0) return errno;
    return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static int copy_bytes(int from, int to) {
    for (;;) {
        ssize_t sent = sendfile(to, from, NULL, 1 << 20);
        if (sent == 0) return 0;
        if (sent < 0 && errno != EINTR) return errno;
    }
}

static int copy_file(const char *source, const char *destination) {
    struct stat found;
    int from = open(source, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0) return errno;
    int error = fstat(from, &found) < 0 ? errno : S_ISREG(found.st_mode) ? 0 : EINVAL;
    int to = error ? -1 : open(destination, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (!error && to < 0) error = errno;
    if (!error) error = copy_bytes(from, to);
    close(from);
    if (to >= 0) close(to);
    return error ? error : copy_looks(destination, &found);
}

static int copy_link(const char *source, const char *destination, const struct stat *found) {
    char target[PATH_MAX];
    ssize_t length = readlink(source, target, sizeof target - 1);
    if (length < 0) return errno;
    target[length] = 0;
    return symlink(target, destination) < 0 ? errno : copy_looks(destination, found);
}

/* One thing; of a directory only itself. */
static int copy_one(const char *source, const char *destination, bool *is_directory) {
    struct stat found;
    *is_directory = false;
    if (lstat(source, &found) < 0) return errno;
    if (S_ISREG(found.st_mode)) return copy_file(source, destination);
    if (S_ISLNK(found.st_mode)) return copy_link(source, destination, &found);
    if (S_ISFIFO(found.st_mode)) return mkfifo(destination, 0600) < 0 ? errno : copy_looks(destination, &found);
    if (!S_ISDIR(found.st_mode)) return EOPNOTSUPP;
    *is_directory = true;
    return mkdir(destination, 0700) < 0 ? errno : 0;
}

static int copy_contents(struct copying *copying, const char *below) {
    char source[PATH_MAX], destination[PATH_MAX], path[PATH_MAX];
    struct directory directory;
    const char *name;
    bool is_directory;
    int error = join(source, copying->source, below);
    if (error) return error;
    int fd = open(source, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    directory_begin(&directory, fd);
    while (!error && (name = directory_next(&directory))) {
        error = *below ? join(path, below, name) : join(path, name, "");
        if (!error) error = join(source, copying->source, path);
        if (!error) error = join(destination, copying->destination, path);
        if (!error) error = copy_one(source, destination, &is_directory);
        if (!error && is_directory) error = folders_add(&copying->folders, path);
    }
    close(fd);
    return error ? error : directory.error;
}

static int finish_folders(struct copying *copying) {
    char source[PATH_MAX], destination[PATH_MAX];
    struct stat found;
    int error = 0;
    for (size_t i = copying->folders.count; !error && i--;) {
        error = join(source, copying->source, copying->folders.paths[i]);
        if (!error) error = join(destination, copying->destination, copying->folders.paths[i]);
        if (!error) error = lstat(source, &found) < 0 ? errno : copy_looks(destination, &found);
    }
    return error;
}

int copy_tree(const char *source, const char *destination) {
    struct copying copying = {source, destination, {0}};
    bool is_directory;
    int error = copy_one(source, destination, &is_directory);
    if (!error && is_directory) {
        error = folders_add(&copying.folders, "");
        for (size_t i = 0; !error && i < copying.folders.count; i++) error = copy_contents(&copying, copying.folders.paths[i]);
        if (!error) error = finish_folders(&copying);
    }
    for (size_t i = 0; i < copying.folders.count; i++) free(copying.folders.paths[i]);
    free(copying.folders.paths);
    return error;
}

static int remove_any(const char *path) {
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    return errno == EISDIR ? remove_tree(AT_FDCWD, path) : errno;
}

/* A name beside the destination that nobody has. */
static int beside(const char *destination, char path[PATH_MAX]) {
    uint64_t random;
    size_t length = strlen(destination);
    while (length && destination[length - 1] == '/') length--;
    while (length && destination[length - 1] != '/') length--;
    if (length + NAME_SIZE > PATH_MAX) return ENAMETOOLONG;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return EIO;
    memcpy(path, destination, length);
    put_number(put_text(path + length, TEMPORARY_PREFIX), random);
    return 0;
}

void job_move(struct job *job) {
    char temporary[PATH_MAX];
    int error = beside(job->other, temporary);
    if (error) {
        worker_fail(job, error, "");
        return;
    }
    error = copy_tree(job->path, temporary);
    if (!error && rename(temporary, job->other) < 0) error = errno;
    if (error) remove_any(temporary);
    else error = remove_any(job->path);
    struct labels labels = {0};
    struct writer w = answer_begin();
    if (!error) error = entry_write_at(&w, job->other, AT_FDCWD, job->other, AT_SYMLINK_NOFOLLOW, job->identity, &labels);
    if (error) worker_fail(job, error, "");
    else worker_say(job, &w, ANS_ENTRY);
}
