/* ATTRIBUTES, and those of OPEN_FOR: what people have pinned to files, as extended attributes whose names begin alike. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "actions.h"
#include "files.h"
#include "resolve.h"
#include "text.h"

enum { MAX_PATHS = 128, MAX_OF_ONE = 8192, MAX_NAMES_SIZE = 1 << 16 };

/* One name and its value, unless they are too long; answers whether they were written. */
static bool write_attribute(struct writer *w, const char *file, const char *name, size_t room) {
    uint8_t value[MAX_OF_ONE];
    ssize_t got = getxattr(file, name, value, sizeof value);
    if (got < 0 || (size_t)got + strlen(name) + 8 > room) return false;
    write_text(w, name);
    write_bytes(w, value, (size_t)got);
    return true;
}

/* Of one file. That it has none, and that it cannot be looked at, is the same to whoever asks about many. */
static void write_attributes(struct writer *w, const char *path, const char *prefix, char *names) {
    char itself[NAME_SIZE];
    size_t counted = w->length;
    uint32_t count = 0;
    write_u32(w, 0);
    size_t begin = w->length;
    int fd = open_path(path, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0) return;
    put_number(put_text(itself, "/proc/self/fd/"), (uint64_t)fd);
    ssize_t length = listxattr(itself, names, MAX_NAMES_SIZE);
    for (const char *name = names; name < names + (length > 0 ? length : 0); name += strlen(name) + 1) {
        if (w->failed || !starts_with(name, prefix)) continue;
        if (write_attribute(w, itself, name, begin + MAX_OF_ONE - w->length)) count++;
    }
    close(fd);
    if (!w->failed) put_u32(w->data + counted, count);
}

static bool is_wanted(const struct list *wanted, const char *name) {
    for (uint32_t i = 0; i + 1 < wanted->count; i += 2) {
        if (strcmp(wanted->items[i], name) == 0) return true;
    }
    return false;
}

static int remove_others(int fd, const char *prefix, const struct list *wanted) {
    char *names = malloc(MAX_NAMES_SIZE);
    if (!names) return ENOMEM;
    ssize_t length = flistxattr(fd, names, MAX_NAMES_SIZE);
    /* A file system without attributes has none to take away. */
    int error = length < 0 && errno != EOPNOTSUPP ? errno : 0;
    for (const char *name = names; !error && name < names + (length > 0 ? length : 0); name += strlen(name) + 1) {
        if (starts_with(name, prefix) && !is_wanted(wanted, name) && fremovexattr(fd, name) < 0) error = errno;
    }
    free(names);
    return error;
}

int attributes_replace(int fd, const char *prefix, const struct list *wanted) {
    int error = remove_others(fd, prefix, wanted);
    for (uint32_t i = 0; !error && i + 1 < wanted->count; i += 2) {
        const char *value = wanted->items[i + 1];
        if (!starts_with(wanted->items[i], prefix)) error = EINVAL;
        else if (fsetxattr(fd, wanted->items[i], value, strlen(value), 0) < 0) error = errno;
    }
    return error;
}

void do_attributes(struct connection *c, uint32_t id, const char *user, const char *prefix, const struct list *paths) {
    struct identity identity;
    if (paths->count > MAX_PATHS) {
        answer_error(c, id, EINVAL, "too many paths at once");
        return;
    }
    char *names = malloc(MAX_NAMES_SIZE);
    if (!names || !path_begin(c, id, user, "/", &identity)) {
        if (!names) answer_error(c, id, ENOMEM, "no memory");
        free(names);
        return;
    }
    struct writer w = answer_begin();
    write_u32(&w, paths->count);
    for (uint32_t i = 0; i < paths->count; i++) write_attributes(&w, paths->items[i], prefix, names);
    identity_leave(&identity);
    free(names);
    answer_send(c, &w, ANS_ATTRIBUTES, id, -1);
}
