#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

enum { SMALLEST_SEGMENT = 4096 };

int state_directory = -1;

static const char *segment_name(const struct spool *spool, uint64_t base, char name[NAME_SIZE]) {
    char letter[4] = {'.', spool->letter, '.', 0};
    put_number(put_text(put_number(name, spool->sequence), letter), base);
    return name;
}

void spool_begin(struct spool *spool, uint64_t sequence, char letter, uint64_t limit) {
    *spool = (struct spool){.sequence = sequence, .limit = limit, .fd = -1, .letter = letter};
}

static uint64_t segment_limit(const struct spool *spool) {
    return spool->limit / 2 > SMALLEST_SEGMENT ? spool->limit / 2 : SMALLEST_SEGMENT;
}

static void drop_segment(struct spool *spool, unsigned index) {
    char name[NAME_SIZE];
    unlinkat(state_directory, segment_name(spool, spool->segments[index].base, name), 0);
    if (index == 0 && spool->count == 2) spool->segments[0] = spool->segments[1];
    spool->count--;
}

void spool_finish(struct spool *spool) {
    if (spool->fd >= 0) close(spool->fd);
    spool->fd = -1;
}

/* The segment to write to: the last one, or a new one that begins at `size`. */
static struct segment *writable_segment(struct spool *spool) {
    struct segment *last = spool->count ? &spool->segments[spool->count - 1] : NULL;
    if (spool->fd >= 0 && last && (spool->stretched || last->length < segment_limit(spool))) return last;
    spool_finish(spool);
    if (spool->count == 2) drop_segment(spool, 0);
    char name[NAME_SIZE];
    spool->fd = openat(state_directory, segment_name(spool, spool->size, name),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (spool->fd < 0) return NULL;
    spool->segments[spool->count++] = (struct segment){spool->size, 0};
    return &spool->segments[spool->count - 1];
}

void spool_append(struct spool *spool, const uint8_t *data, size_t length) {
    while (length) {
        struct segment *segment = writable_segment(spool);
        if (!segment) break;
        uint64_t room = spool->stretched ? length : segment_limit(spool) - segment->length;
        ssize_t put = write(spool->fd, data, length < room ? length : (size_t)room);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            /* The disk is full. What comes later must not stand where the missing bytes would: a new segment. */
            spool_finish(spool);
            if (!segment->length) drop_segment(spool, spool->count - 1);
            break;
        }
        segment->length += (uint64_t)put;
        spool->size += (uint64_t)put;
        data += put;
        length -= (size_t)put;
    }
    spool->size += length;
}

uint64_t spool_room(const struct spool *spool, uint64_t offset) {
    const struct segment *last = spool->count ? &spool->segments[spool->count - 1] : NULL;
    uint64_t limit = segment_limit(spool), room = 0;
    if (spool->fd >= 0 && last && last->length < limit) room = limit - last->length;
    /* A new segment takes the place of the oldest of two: only when nothing of that one is needed any more. */
    bool needed = spool->count == 2 && offset < spool->segments[0].base + spool->segments[0].length;
    return needed ? room : room + limit;
}

static size_t read_segment(const struct spool *spool, const struct segment *segment, uint64_t offset, uint8_t *into,
                           size_t limit) {
    char name[NAME_SIZE];
    int fd = openat(state_directory, segment_name(spool, segment->base, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    uint64_t left = segment->base + segment->length - offset;
    if (limit > left) limit = (size_t)left;
    size_t done = 0;
    while (done < limit) {
        ssize_t got = pread(fd, into + done, limit - done, (off_t)(offset - segment->base + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    close(fd);
    return done;
}

size_t spool_read(const struct spool *spool, uint64_t *offset, uint8_t *into, size_t limit) {
    if (*offset >= spool->size) return 0;
    size_t done = 0;
    for (unsigned i = 0; i < spool->count && done < limit; i++) {
        const struct segment *segment = &spool->segments[i];
        if (segment->base + segment->length <= *offset + done) continue;
        if (segment->base > *offset + done) {
            if (done) return done; /* a gap: what is behind it is another piece */
            *offset = segment->base;
        }
        done += read_segment(spool, segment, *offset + done, into + done, limit - done);
    }
    if (!done && limit) *offset = spool->size;
    return done;
}

void spool_remove(struct spool *spool) {
    spool_finish(spool);
    while (spool->count) drop_segment(spool, spool->count - 1);
}

uint64_t spool_held(const struct spool *spool) {
    uint64_t held = 0;
    for (unsigned i = 0; i < spool->count; i++) held += spool->segments[i].length;
    return held;
}

bool spool_adopt(struct spool *spool, uint64_t base) {
    char name[NAME_SIZE];
    struct stat found;
    if (spool->count == 2) return false;
    if (fstatat(state_directory, segment_name(spool, base, name), &found, AT_SYMLINK_NOFOLLOW) < 0) return false;
    if (!S_ISREG(found.st_mode)) return false;
    struct segment segment = {base, (uint64_t)found.st_size};
    if (spool->count && spool->segments[0].base > base) {
        spool->segments[1] = spool->segments[0];
        spool->segments[0] = segment;
    } else {
        spool->segments[spool->count] = segment;
    }
    spool->count++;
    if (spool->size < segment.base + segment.length) spool->size = segment.base + segment.length;
    return true;
}
