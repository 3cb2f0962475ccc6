/* Recursive removal without recursion: any depth, one descriptor, and never through a symlink. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"
#include "files.h"

/* Which directories we came through: the way up is "..", and is checked against them. */
struct trail {
    struct place {
        dev_t device;
        ino_t inode;
    } *places;
    size_t count, room;
};

enum { OPEN_BELOW = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK };

static int trail_push(struct trail *trail, int fd) {
    struct stat found;
    if (fstat(fd, &found) < 0) return errno;
    if (trail->count == trail->room) {
        size_t room = trail->room ? trail->room * 2 : 64;
        struct place *grown = realloc(trail->places, room * sizeof *grown);
        if (!grown) return ENOMEM;
        trail->places = grown;
        trail->room = room;
    }
    trail->places[trail->count++] = (struct place){found.st_dev, found.st_ino};
    return 0;
}

static int go_up(struct trail *trail, int *fd) {
    struct stat found;
    int up = openat(*fd, "..", OPEN_BELOW);
    if (up < 0) return errno;
    close(*fd);
    *fd = up;
    struct place *place = &trail->places[--trail->count];
    if (fstat(up, &found) < 0) return errno;
    /* Somebody moved the tree while we were in it. */
    return found.st_dev == place->device && found.st_ino == place->inode ? 0 : EBUSY;
}

/* Removes what can be removed at once. Answers with a descriptor of the first directory that is not empty, or -1. */
static int clear_one(struct directory *directory, int *error) {
    const char *name;
    while ((name = directory_next(directory))) {
        if (unlinkat(directory->fd, name, 0) == 0 || errno == ENOENT) continue;
        if (errno != EISDIR) {
            *error = errno;
            return -1;
        }
        if (unlinkat(directory->fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
        if (errno != ENOTEMPTY && errno != EEXIST) {
            *error = errno;
            return -1;
        }
        int below = openat(directory->fd, name, OPEN_BELOW);
        if (below < 0) *error = errno;
        return below;
    }
    *error = directory->error;
    return -1;
}

int remove_tree(int folder, const char *name) {
    struct trail trail = {0};
    struct directory directory;
    int error = 0, fd = openat(folder, name, OPEN_BELOW);
    if (fd < 0) return errno;
    while (!error) {
        directory_begin(&directory, fd);
        directory_again(&directory);
        int below = clear_one(&directory, &error);
        if (error) break;
        if (below >= 0) {
            error = trail_push(&trail, fd);
            close(fd);
            fd = below;
        } else if (trail.count) {
            error = go_up(&trail, &fd);
        } else {
            break;
        }
    }
    close(fd);
    free(trail.places);
    if (!error && unlinkat(folder, name, AT_REMOVEDIR) < 0) error = errno;
    return error;
}

void job_remove(struct job *job) {
    int error = remove_tree(AT_FDCWD, job->path);
    if (error) {
        worker_fail(job, error, "");
        return;
    }
    struct writer w = answer_begin();
    worker_say(job, &w, ANS_OK);
}
