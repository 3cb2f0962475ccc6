/* WATCH: changes below a directory, by inotify, and never through a symlink. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actions.h"
#include "directory.h"
#include "files.h"
#include "resolve.h"
#include "text.h"
#include "watched.h"

enum {
    MASK = IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR,
    AT_ONCE = 64, /* directories looked through before others get their turn */
};

/* A directory that is still to be watched; `told`: what is in it already is news. */
struct pending {
    struct pending *next;
    bool told;
    char path[];
};

struct watching {
    struct request request;
    struct source source;
    struct later later;
    struct identity identity;
    struct places places;
    struct names names;
    struct pending *first, *last;
    uint64_t last_hash; /* of the last event told in this batch */
    int fd, top;
    bool recursive, armed;
};

static void on_events(struct source *source, uint32_t events);

/* For those who know only three kinds. */
static uint8_t coarse(uint8_t change) {
    switch (change) {
        case EVENT_MOVED_AWAY: return EVENT_REMOVED;
        case EVENT_ATTRIBUTES: case EVENT_REPLACED: return EVENT_MODIFIED;
        default: return change;
    }
}

static void tell(struct watching *watching, const char *path, uint8_t change) {
    if (!watching->request.connection->takes_details) change = coarse(change);
    /* A write of many pieces is one change. */
    uint64_t hash = change;
    for (const char *at = path; *at; at++) hash = (hash ^ (uint8_t)*at) * 0x100000001b3u;
    if (watching->last_hash == hash) return;
    watching->last_hash = hash;
    struct writer w = answer_begin();
    write_u8(&w, change);
    write_text(&w, *path ? path : "/");
    answer_send(watching->request.connection, &w, ANS_EVENT, watching->request.id, -1);
}

static int pend(struct watching *watching, const char *path, bool told) {
    size_t length = strlen(path);
    struct pending *pending = malloc(sizeof *pending + length + 1);
    if (!pending) return ENOMEM;
    pending->next = NULL;
    pending->told = told;
    memcpy(pending->path, path, length + 1);
    if (watching->last) watching->last->next = pending;
    else watching->first = pending;
    watching->last = pending;
    return 0;
}

static bool is_directory(const struct directory *directory, const char *name) {
    struct stat found;
    if (directory->type != DT_UNKNOWN) return directory->type == DT_DIR;
    return fstatat(directory->fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode);
}

/* What is in a directory that is watched by now. */
static int look_through(struct watching *watching, int fd, int number, const char *path, bool told) {
    struct directory directory;
    char full[PATH_MAX];
    const char *name;
    int error = 0;
    directory_begin(&directory, fd);
    while (!error && (name = directory_next(&directory))) {
        if (starts_with(name, TEMPORARY_PREFIX) || strlen(path) + strlen(name) + 2 > sizeof full) continue;
        put_text(put_text(put_text(full, path), "/"), name);
        bool fresh = name_add(&watching->names, number, name);
        if (fresh && told) tell(watching, full, EVENT_CREATED);
        if (watching->recursive && is_directory(&directory, name)) error = pend(watching, full, told);
    }
    return error;
}

/* By the descriptor, so that what is watched is what was opened. */
static int add_watch(int inotify, int fd) {
    char itself[NAME_SIZE];
    put_number(put_text(itself, "/proc/self/fd/"), (uint64_t)fd);
    return inotify_add_watch(inotify, itself, MASK);
}

/* 0; or what ends the watch. That a directory is gone or closed to us ends it only at the top. */
static int watch_one(struct watching *watching, const char *path, bool told) {
    bool is_top = watching->top < 0;
    int fd = open_path(*path ? path : "/", O_RDONLY | O_DIRECTORY | O_NONBLOCK | (is_top ? 0 : O_NOFOLLOW), 0);
    if (fd < 0) return is_top ? errno : 0;
    int number = add_watch(watching->fd, fd), error = 0;
    if (number < 0) error = is_top || errno == ENOSPC || errno == ENOMEM ? errno : 0;
    else if (!place_put(&watching->places, number, path)) error = ENOSPC;
    if (is_top) watching->top = number;
    if (number >= 0 && !error) error = look_through(watching, fd, number, path, told);
    close(fd);
    return error;
}

/* Some of the directories that are still to be watched. 0 or what ends the watch. */
static int go_on(struct watching *watching) {
    int error = identity_enter(&watching->identity);
    if (error) return error;
    for (int i = 0; !error && watching->first && i < AT_ONCE; i++) {
        struct pending *pending = watching->first;
        watching->first = pending->next;
        if (!watching->first) watching->last = NULL;
        error = watch_one(watching, pending->path, pending->told);
        free(pending);
    }
    identity_leave(&watching->identity);
    return error;
}

static void advance(struct watching *watching) {
    int error = go_on(watching);
    if (error) {
        request_fail(&watching->request, error, error == ENOSPC ? "too many directories to watch" : "");
    } else if (watching->first) {
        loop_later(&watching->later);
    } else if (!watching->armed) {
        watching->armed = true;
        answer_ok(watching->request.connection, watching->request.id);
        if (!loop_add(&watching->source, watching->fd, EPOLLIN, on_events)) request_fail(&watching->request, ENOMEM, "");
    }
}

static void on_later(struct later *later) { advance(owner_of(later, struct watching, later)); }

static int note_arrival(struct watching *watching, const struct inotify_event *event, const char *path) {
    if (!name_add(&watching->names, event->wd, event->name)) {
        /* Made between arming and looking, and told already; but a rename onto a known name changes that file. */
        if (event->mask & IN_MOVED_TO) tell(watching, path, EVENT_REPLACED);
        return 0;
    }
    tell(watching, path, EVENT_CREATED);
    return event->mask & IN_ISDIR && watching->recursive ? pend(watching, path, true) : 0;
}

/* 0, or what ends the watch. */
static int note(struct watching *watching, const struct inotify_event *event) {
    char full[PATH_MAX];
    const char *folder = place_path(&watching->places, event->wd), *name = event->len ? event->name : "";
    if (event->mask & IN_Q_OVERFLOW) return EOVERFLOW;
    if (event->mask & IN_IGNORED) {
        place_remove(&watching->places, event->wd);
        return event->wd == watching->top ? ENOENT : 0;
    }
    if (!folder || starts_with(name, TEMPORARY_PREFIX) || strlen(folder) + strlen(name) + 2 > sizeof full) return 0;
    put_text(put_text(put_text(full, folder), *name ? "/" : ""), name);
    if (event->mask & IN_DELETE_SELF) {
        if (event->wd == watching->top) tell(watching, full, EVENT_REMOVED);
    } else if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
        return note_arrival(watching, event, full);
    } else if (event->mask & (IN_DELETE | IN_MOVED_FROM)) {
        name_remove(&watching->names, event->wd, name);
        tell(watching, full, event->mask & IN_MOVED_FROM ? EVENT_MOVED_AWAY : EVENT_REMOVED);
        /* Moved away: what happens to it now is none of ours. */
        if (event->mask & IN_MOVED_FROM && event->mask & IN_ISDIR) places_forget(&watching->places, full, watching->fd);
    } else if (*name) {
        tell(watching, full, event->mask & IN_MODIFY ? EVENT_MODIFIED : EVENT_ATTRIBUTES);
    }
    return 0;
}

static void on_events(struct source *source, uint32_t events) {
    (void)events;
    struct watching *watching = owner_of(source, struct watching, source);
    _Alignas(struct inotify_event) char buffer[4096];
    if (connection_busy(watching->request.connection)) {
        /* The kernel keeps them; when it cannot any more, it says so. */
        loop_change(source, 0);
        return;
    }
    ssize_t got = read(source->fd, buffer, sizeof buffer);
    int error = 0;
    watching->last_hash = 0;
    for (ssize_t at = 0; !error && at < got;) {
        const struct inotify_event *event = (const void *)(buffer + at);
        error = note(watching, event);
        at += (ssize_t)(sizeof *event + event->len);
    }
    if (error) request_fail(&watching->request, error, error == EOVERFLOW ? "events were lost" : "the directory is gone");
    else if (watching->first) advance(watching);
}

static void on_drained(struct request *request) {
    loop_change(&owner_of(request, struct watching, request)->source, EPOLLIN);
}

static void on_stop(struct request *request) {
    struct watching *watching = owner_of(request, struct watching, request);
    loop_not_later(&watching->later);
    loop_remove(&watching->source);
    if (watching->fd >= 0) close(watching->fd);
    places_drop(&watching->places);
    names_drop(&watching->names);
    while (watching->first) {
        struct pending *next = watching->first->next;
        free(watching->first);
        watching->first = next;
    }
}

static const struct request_kind watch_kind = {on_stop, on_drained};

/* Everything that the kernel has for this watch; it may be over then, and gone. */
static void catch_up(struct watching *watching) {
    struct connection *c = watching->request.connection;
    uint32_t id = watching->request.id;
    int waiting = 0;
    while (watching->armed && !connection_busy(c) && ioctl(watching->fd, FIONREAD, &waiting) == 0 && waiting > 0) {
        on_events(&watching->source, EPOLLIN);
        if (request_find(c, id) != &watching->request) return;
    }
}

void do_ping(struct connection *c, uint32_t id) {
    for (struct request *request = c->requests, *next; request; request = next) {
        next = request->next;
        if (request->kind == &watch_kind) catch_up(owner_of(request, struct watching, request));
    }
    answer_ok(c, id);
}

void do_watch(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive) {
    struct watching *watching = request_open(c, id, &watch_kind, sizeof *watching);
    if (!watching) return;
    watching->source.fd = watching->top = -1;
    watching->later.call = on_later;
    watching->recursive = recursive;
    watching->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int error = watching->fd < 0 ? errno : *path != '/' ? EINVAL : identity_resolve(user, &watching->identity);
    size_t length = strlen(path);
    if (!error && length >= PATH_MAX) error = ENAMETOOLONG;
    if (error) {
        request_fail(&watching->request, error, "");
        return;
    }
    char plain[PATH_MAX];
    put_text(plain, path);
    while (length && plain[length - 1] == '/') plain[--length] = 0;
    error = pend(watching, plain, false);
    if (error) request_fail(&watching->request, error, "");
    else advance(watching);
}
