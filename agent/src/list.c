/* LIST_DIR: level by level, symlinks shown and not followed. A small directory at once, everything else by a worker. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actions.h"
#include "directory.h"
#include "entry.h"
#include "files.h"
#include "resolve.h"
#include "text.h"

enum { AT_ONCE = 256, FRAME_FULL = WORKER_FRAME / 2 };

struct level {
    char **paths;
    size_t count, room;
};

struct listing {
    struct job *job; /* NULL: in the agent itself */
    const struct identity *identity;
    struct labels labels;
    struct writer w;
    uint32_t count, total, max;
    bool truncated;
};

static void frame_begin(struct listing *listing) {
    listing->w = answer_begin();
    write_u32(&listing->w, 0);
    listing->count = 0;
}

static void frame_end(struct listing *listing) {
    if (!listing->w.failed) put_u32(listing->w.data + HEADER_SIZE, listing->count);
    if (listing->count) worker_say(listing->job, &listing->w, ANS_ENTRIES);
    else writer_drop(&listing->w);
}

static bool level_add(struct level *level, const char *path) {
    if (level->count == level->room) {
        size_t room = level->room ? level->room * 2 : 16;
        char **grown = realloc(level->paths, room * sizeof *grown);
        if (!grown) return false;
        level->paths = grown;
        level->room = room;
    }
    level->paths[level->count] = strdup(path);
    return level->paths[level->count] && ++level->count;
}

static bool is_directory(const struct listing *listing, size_t entry, size_t path_length) {
    return !listing->w.failed && listing->w.data[entry + 4 + path_length] == ENTRY_DIRECTORY;
}

/* All in one directory; those that are directories themselves are added to `below`. 0, or why it cannot be read. */
static int list_one(struct listing *listing, const char *path, int flags, struct level *below) {
    int fd = open_path(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | flags, 0);
    if (fd < 0) return errno;
    struct directory directory;
    char full[PATH_MAX + NAME_MAX + 2];
    const char *name;
    size_t length = strlen(path);
    if (length >= PATH_MAX) {
        close(fd);
        return ENAMETOOLONG;
    }
    memcpy(full, path, length);
    while (length && full[length - 1] == '/') length--;
    full[length++] = '/';
    directory_begin(&directory, fd);
    while (!listing->truncated && (name = directory_next(&directory))) {
        if (starts_with(name, TEMPORARY_PREFIX)) continue;
        if (listing->total >= listing->max) {
            listing->truncated = true;
            break;
        }
        put_text(full + length, name);
        size_t begin = listing->w.length;
        if (entry_write_at(&listing->w, full, fd, name, AT_SYMLINK_NOFOLLOW, listing->identity, &listing->labels)) continue;
        listing->count++;
        listing->total++;
        if (below && is_directory(listing, begin, strlen(full)) && !level_add(below, full)) listing->truncated = true;
        if (listing->job && listing->w.length > FRAME_FULL) {
            frame_end(listing);
            frame_begin(listing);
        }
    }
    close(fd);
    return directory.error;
}

static void job_list(struct job *job) {
    struct listing listing = {.job = job, .identity = job->identity, .max = job->max};
    struct level here = {0}, below = {0};
    frame_begin(&listing);
    int error = list_one(&listing, job->path, 0, &here);
    if (error) {
        worker_fail(job, error, "");
        return;
    }
    for (uint32_t depth = 1; depth < job->depth && here.count; depth++) {
        for (size_t i = 0; i < here.count; i++) {
            /* Gone by now, closed to this user, or exchanged for a symlink: then there is nothing below it. */
            list_one(&listing, here.paths[i], O_NOFOLLOW, &below);
            free(here.paths[i]);
        }
        free(here.paths);
        here = below;
        below = (struct level){0};
    }
    frame_end(&listing);
    struct writer w = answer_begin();
    write_u32(&w, listing.total);
    write_u8(&w, listing.truncated);
    worker_say(job, &w, ANS_END);
}

static void answer_listing(struct connection *c, uint32_t id, struct listing *listing) {
    if (!listing->w.failed) put_u32(listing->w.data + HEADER_SIZE, listing->count);
    if (listing->count) answer_send(c, &listing->w, ANS_ENTRIES, id, -1);
    else writer_drop(&listing->w);
    struct writer w = answer_begin();
    write_u32(&w, listing->total);
    write_u8(&w, listing->truncated);
    answer_send(c, &w, ANS_END, id, -1);
}

void do_list(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t depth, uint32_t max) {
    struct identity identity;
    if (!depth) {
        answer_error(c, id, EINVAL, "a listing is at least one level deep");
        return;
    }
    if (!path_begin(c, id, user, path, &identity)) return;
    struct listing listing = {.identity = &identity, .max = max < AT_ONCE ? max : AT_ONCE};
    int error = 0;
    frame_begin(&listing);
    if (depth == 1) error = list_one(&listing, path, 0, NULL);
    identity_leave(&identity);
    bool long_one = depth > 1 || (listing.truncated && listing.max < max);
    if (!error && !long_one) {
        answer_listing(c, id, &listing);
        return;
    }
    writer_drop(&listing.w);
    struct job job = {.run = job_list, .identity = &identity, .path = path, .depth = depth, .max = max};
    if (error) answer_path_error(c, id, error);
    else worker_start(c, id, &job);
}
