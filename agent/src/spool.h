/* The output of one stream, kept in at most two files of the state directory; the oldest bytes go first. */
#ifndef PADDOCK_SPOOL_H
#define PADDOCK_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment {
    uint64_t base, length;
};

struct spool {
    uint64_t sequence, limit;
    uint64_t size; /* bytes that came, also those that are gone */
    struct segment segments[2]; /* oldest first */
    unsigned count;
    int fd; /* of the last segment, while it is written; -1 */
    char letter;
    bool stretched; /* nothing is dropped: the last segment grows past its limit */
};

/* Where records and spools are; nothing inside the sandbox has a path to it. */
extern int state_directory;

void spool_begin(struct spool *spool, uint64_t sequence, char letter, uint64_t limit);
/* Never fails: what the disk does not take is counted, and missing. */
void spool_append(struct spool *spool, const uint8_t *data, size_t length);
/* How many bytes can be appended before one from `offset` on is dropped. */
uint64_t spool_room(const struct spool *spool, uint64_t offset);
/* Moves `*offset` to where data really begins, if that is later. Answers with the number of bytes. */
size_t spool_read(const struct spool *spool, uint64_t *offset, uint8_t *into, size_t limit);
/* No more will come. */
void spool_finish(struct spool *spool);
void spool_remove(struct spool *spool);
uint64_t spool_held(const struct spool *spool);
/* A segment found on disk; false: it is none of this spool's. */
bool spool_adopt(struct spool *spool, uint64_t base);

#endif
