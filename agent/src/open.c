/* OPEN, COMMIT, CLOSE, PREAD and PWRITE: files handed over, and new ones put in their place when they are whole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "actions.h"
#include "entry.h"
#include "files.h"
#include "resolve.h"
#include "text.h"

enum { MAX_TOKENS = 256, MAX_LINKS = 40, NEW_FILE = 0644 };

struct token {
    struct token *next;
    uint32_t number;
    int fd, folder; /* folder: where a temporary file is; -1 */
    uint8_t how;
    mode_t bits; /* for COMMIT of a replacement */
    char temporary[NAME_SIZE];
    char *path, *name; /* as asked for; and what COMMIT renames to */
    struct identity identity, owner; /* whose rights it was opened with; and whose it becomes, if `owned` */
    bool owned;
};

static struct token *token_find(struct connection *c, uint32_t number) {
    struct token *token = c->tokens;
    while (token && token->number != number) token = token->next;
    return token;
}

static void token_free(struct token *token) {
    if (token->fd >= 0) close(token->fd);
    if (token->folder >= 0) close(token->folder);
    free(token->path);
    free(token->name);
    free(token);
}

static void abandon(struct token *token) {
    if (*token->temporary && identity_enter(&token->identity) == 0) {
        unlinkat(token->folder, token->temporary, 0);
        identity_leave(&token->identity);
    }
    token_free(token);
}

static void token_drop(struct connection *c, struct token *token) {
    struct token **link = &c->tokens;
    while (*link != token) link = &(*link)->next;
    *link = token->next;
    abandon(token);
}

void tokens_drop(struct connection *c) {
    while (c->tokens) token_drop(c, c->tokens);
}

/* 0 for a regular file, else what is wrong with it. */
static int kind_error(mode_t bits) {
    if (S_ISREG(bits)) return 0;
    return S_ISDIR(bits) ? EISDIR : EINVAL;
}

static int open_regular(int folder, const char *name, int flags, mode_t bits, int *fd) {
    struct stat found;
    /* Looked at first, because opening a FIFO or a device can have effects; and again, because it may be another. */
    if (fstatat(folder, name, &found, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) == 0 && kind_error(found.st_mode)) {
        return kind_error(found.st_mode);
    }
    *fd = open_below(folder, name, flags | O_NONBLOCK | O_NOCTTY, bits);
    if (*fd < 0) return errno == ENXIO ? EINVAL : errno;
    if (fstat(*fd, &found) < 0) return errno;
    return kind_error(found.st_mode);
}

/* The directory of a path and the name in it, behind symlinks at its end, whether that exists or not. */
static int open_folder(struct token *token, const char *path) {
    char here[PATH_MAX], link[PATH_MAX];
    if (strlen(path) >= sizeof here) return ENAMETOOLONG;
    put_text(here, path);
    for (int i = 0; i < MAX_LINKS; i++) {
        char *name = strrchr(here, '/') + 1;
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return EISDIR;
        char first = *name;
        *name = 0;
        token->folder = open_path(here, O_PATH | O_DIRECTORY, 0);
        *name = first;
        if (token->folder < 0) return errno;
        ssize_t length = readlinkat(token->folder, name, link, sizeof link - 1);
        if (length < 0) {
            if (strlen(name) > NAME_MAX) return ENAMETOOLONG;
            token->name = strdup(name);
            return token->name ? 0 : ENOMEM;
        }
        close(token->folder);
        token->folder = -1;
        link[length] = 0;
        if (*link == '/') name = here;
        if ((size_t)(name - here) + (size_t)length >= sizeof here) return ENAMETOOLONG;
        put_text(name, link);
    }
    return ELOOP;
}

static int open_replacement(struct token *token, uint32_t bits) {
    struct stat found;
    uint64_t random;
    bool exists = fstatat(token->folder, token->name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && kind_error(found.st_mode)) return kind_error(found.st_mode);
    if (getrandom(&random, sizeof random, 0) != sizeof random) return EIO;
    if (bits != MODE_UNCHANGED) token->bits = bits & 07777;
    else token->bits = exists ? found.st_mode & 07777 : NEW_FILE;
    put_number(put_text(token->temporary, TEMPORARY_PREFIX), random);
    token->fd = openat(token->folder, token->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (token->fd >= 0) return 0;
    *token->temporary = 0;
    return errno;
}

/* To its owner. Watches are to see that it was done, also where there is nothing to do. */
static int give_away(struct token *token, mode_t present) {
    if (!identity_own(&token->owner, token->fd, "", AT_EMPTY_PATH)) return errno;
    return mode != MODE_RANGE && fchmod(token->fd, present & 07777) < 0 ? errno : 0;
}

static int open_in_place(struct token *token, uint32_t bits) {
    int error = open_regular(token->folder, token->name, O_WRONLY | O_CREAT | O_NOFOLLOW, NEW_FILE, &token->fd);
    struct stat found;
    if (!error && fstat(token->fd, &found) < 0) error = errno;
    /* To whoever watches, cutting an empty file would be a change. */
    if (!error && found.st_size && ftruncate(token->fd, 0) < 0) error = errno;
    if (!error && token->owned) error = give_away(token, found.st_mode);
    if (!error && bits != MODE_UNCHANGED && fchmod(token->fd, bits & 07777) < 0) error = errno;
    return error;
}

static int open_for_writing(struct token *token, const struct open_order *order) {
    uint32_t bits = order->mode;
    int error = make_parents(token->path, token->owned ? &token->owner : NULL);
    if (!error) error = open_folder(token, token->path);
    if (error) return error;
    error = token->how == OPEN_REPLACE ? open_replacement(token, bits) : open_in_place(token, bits);
    if (!error && token->owned && token->how == OPEN_REPLACE) error = give_away(token, 0600);
    if (!error && order->prefix) error = attributes_replace(token->fd, order->prefix, &order->attributes);
    return creation_error(error, token->folder);
}

static void answer_opened(struct connection *c, uint32_t id, struct token *token) {
    struct stat found;
    struct labels labels = {0};
    /* Those who take descriptors get one of their own: the same open file, closed when both have let go. */
    int copy = c->takes_descriptors ? fcntl(token->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (fstat(token->fd, &found) < 0 || (c->takes_descriptors && copy < 0)) {
        answer_path_error(c, id, errno);
        abandon(token);
        return;
    }
    token->number = ++c->last_token;
    token->next = c->tokens;
    c->tokens = token;
    struct writer w = answer_begin();
    write_u32(&w, token->number);
    entry_write(&w, token->path, &found, "", token->owned ? &token->owner : &token->identity, &labels);
    answer_send(c, &w, ANS_OPENED, id, copy);
}

static struct token *token_new(struct connection *c, const char *path, uint8_t how) {
    unsigned count = 0;
    for (struct token *token = c->tokens; token; token = token->next) count++;
    struct token *token = count < MAX_TOKENS ? calloc(1, sizeof *token) : NULL;
    if (!token) return NULL;
    token->fd = token->folder = -1;
    token->how = how;
    token->path = strdup(path);
    if (token->path) return token;
    free(token);
    return NULL;
}

void do_open(struct connection *c, uint32_t id, const struct open_order *order) {
    struct token *token = order->how <= OPEN_IN_PLACE ? token_new(c, order->path, order->how) : NULL;
    if (!token) {
        answer_error(c, id, order->how <= OPEN_IN_PLACE ? EAGAIN : EINVAL, "this file cannot be opened so");
        return;
    }
    token->owned = order->owner;
    if (!owner_find(c, id, order->owner, &token->owner) ||
        !path_begin(c, id, order->user, order->path, &token->identity)) {
        token_free(token);
        return;
    }
    int error = order->how == OPEN_READ ? open_regular(AT_FDCWD, order->path, O_RDONLY, 0, &token->fd)
                                        : open_for_writing(token, order);
    identity_leave(&token->identity);
    if (!error) {
        answer_opened(c, id, token);
        return;
    }
    abandon(token);
    answer_path_error(c, id, error);
}

/* The new file takes its place, with its permissions. */
static int put_in_place(struct token *token) {
    if (fchmod(token->fd, token->bits) < 0) return errno;
    if (renameat(token->folder, token->temporary, token->folder, token->name) < 0) return errno;
    *token->temporary = 0;
    return 0;
}

void do_commit(struct connection *c, uint32_t id, uint32_t number) {
    struct token *token = token_find(c, number);
    struct stat found;
    struct labels labels = {0};
    if (!token || token->how == OPEN_READ) {
        answer_error(c, id, EBADF, "there is no such open file");
        return;
    }
    int error = identity_enter(&token->identity);
    if (!error) {
        if (token->how == OPEN_REPLACE) error = put_in_place(token);
        identity_leave(&token->identity);
    }
    if (!error && fstat(token->fd, &found) < 0) error = errno;
    if (error) {
        answer_path_error(c, id, error);
    } else {
        struct writer w = answer_begin();
        entry_write(&w, token->path, &found, "", token->owned ? &token->owner : &token->identity, &labels);
        answer_send(c, &w, ANS_ENTRY, id, -1);
    }
    token_drop(c, token);
}

void do_close(struct connection *c, uint32_t id, uint32_t number) {
    struct token *token = token_find(c, number);
    if (!token) {
        answer_error(c, id, EBADF, "there is no such open file");
        return;
    }
    token_drop(c, token);
    answer_ok(c, id);
}

void do_pread(struct connection *c, uint32_t id, uint32_t number, uint64_t offset, uint32_t limit) {
    struct token *token = token_find(c, number);
    struct writer w = answer_begin();
    size_t want = limit < OUTPUT_MAX ? limit : OUTPUT_MAX;
    write_u32(&w, 0);
    uint8_t *space = write_space(&w, want);
    int error = token ? 0 : EBADF;
    ssize_t got = 0;
    if (!error && offset > INT64_MAX) error = EINVAL;
    if (!error && space && (got = pread(token->fd, space, want, (off_t)offset)) < 0) error = errno;
    if (error) {
        writer_drop(&w);
        answer_path_error(c, id, error);
        return;
    }
    if (space) {
        put_u32(space - 4, (uint32_t)got);
        w.length -= want - (size_t)got;
    }
    answer_send(c, &w, ANS_BYTES, id, -1);
}

void do_pwrite(struct connection *c, uint32_t id, uint32_t number, uint64_t offset, const uint8_t *data, uint32_t length) {
    struct token *token = token_find(c, number);
    int error = !token || token->how == OPEN_READ ? EBADF : offset > (uint64_t)INT64_MAX - length ? EINVAL : 0;
    for (size_t done = 0; !error && done < length;) {
        ssize_t put = pwrite(token->fd, data + done, length - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) error = errno;
        else done += (size_t)put;
    }
    if (error) answer_path_error(c, id, error);
    else answer_ok(c, id);
}
