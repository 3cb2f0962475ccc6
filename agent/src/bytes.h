/* Payloads in and out: every length is checked here, and nowhere else. */
#ifndef PADDOCK_BYTES_H
#define PADDOCK_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing buffer. After a failed allocation it stays `failed` and swallows what follows. */
struct writer {
    uint8_t *data;
    size_t length, room;
    bool failed;
};

void write_u8(struct writer *w, uint8_t value);
void write_u16(struct writer *w, uint16_t value);
void write_u32(struct writer *w, uint32_t value);
void write_u64(struct writer *w, uint64_t value);
void write_raw(struct writer *w, const void *data, size_t length);
void write_bytes(struct writer *w, const void *data, size_t length);
void write_text(struct writer *w, const char *text);
/* Room for `length` more bytes, to be filled by the caller, or NULL. */
uint8_t *write_space(struct writer *w, size_t length);
void put_u32(uint8_t *at, uint32_t value);
void writer_drop(struct writer *w);

/* Reads a payload in place. `failed`: it is not what it should be. `bad_text`: a str held a NUL. */
struct reader {
    uint8_t *at, *end;
    bool failed, bad_text;
};

struct list {
    char **items; /* NULL at the end; to be freed */
    uint32_t count;
};

uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
uint8_t *read_bytes(struct reader *r, uint32_t *length);
/* Ends with a NUL, and lives as long as the payload. Never NULL. */
char *read_text(struct reader *r);
struct list read_list(struct reader *r);
/* All of it was used, and rightly. */
bool reader_done(struct reader *r);
uint32_t get_u32(const uint8_t *at);

#endif
