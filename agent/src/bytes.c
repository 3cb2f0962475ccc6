#include "bytes.h"

#include <stdlib.h>
#include <string.h>

uint8_t *write_space(struct writer *w, size_t length) {
    if (w->failed || length > (size_t)1 << 30) {
        w->failed = true;
        return NULL;
    }
    if (w->room - w->length < length) {
        size_t room = w->room ? w->room : 128;
        while (room - w->length < length) room *= 2;
        uint8_t *grown = realloc(w->data, room);
        if (!grown) {
            w->failed = true;
            return NULL;
        }
        w->data = grown;
        w->room = room;
    }
    uint8_t *at = w->data + w->length;
    w->length += length;
    return at;
}

static void write_number(struct writer *w, uint64_t value, size_t size) {
    uint8_t *at = write_space(w, size);
    for (size_t i = 0; at && i < size; i++) at[i] = (uint8_t)(value >> (8 * i));
}

void write_u8(struct writer *w, uint8_t value) { write_number(w, value, 1); }
void write_u16(struct writer *w, uint16_t value) { write_number(w, value, 2); }
void write_u32(struct writer *w, uint32_t value) { write_number(w, value, 4); }
void write_u64(struct writer *w, uint64_t value) { write_number(w, value, 8); }

void write_raw(struct writer *w, const void *data, size_t length) {
    uint8_t *at = write_space(w, length);
    if (at && length) memcpy(at, data, length);
}

void write_bytes(struct writer *w, const void *data, size_t length) {
    write_u32(w, (uint32_t)length);
    write_raw(w, data, length);
}

void write_text(struct writer *w, const char *text) { write_bytes(w, text, strlen(text)); }

void writer_drop(struct writer *w) {
    free(w->data);
    *w = (struct writer){0};
}

void put_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

uint32_t get_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t read_number(struct reader *r, size_t size) {
    if (r->failed || (size_t)(r->end - r->at) < size) {
        r->failed = true;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (uint64_t)r->at[i] << (8 * i);
    r->at += size;
    return value;
}

uint8_t read_u8(struct reader *r) { return (uint8_t)read_number(r, 1); }
uint16_t read_u16(struct reader *r) { return (uint16_t)read_number(r, 2); }
uint32_t read_u32(struct reader *r) { return (uint32_t)read_number(r, 4); }
uint64_t read_u64(struct reader *r) { return read_number(r, 8); }

uint8_t *read_bytes(struct reader *r, uint32_t *length) {
    *length = read_u32(r);
    if (r->failed || (size_t)(r->end - r->at) < *length) {
        r->failed = true;
        *length = 0;
        return r->at;
    }
    uint8_t *data = r->at;
    r->at += *length;
    return data;
}

char *read_text(struct reader *r) {
    static char empty[1];
    uint32_t length;
    uint8_t *data = read_bytes(r, &length);
    if (r->failed) return empty;
    if (memchr(data, 0, length)) r->bad_text = true;
    /* Its length has been read by now: the text moves one byte into that place, to make room for a NUL. */
    memmove(data - 1, data, length);
    data[(ptrdiff_t)length - 1] = 0;
    return (char *)data - 1;
}

struct list read_list(struct reader *r) {
    struct list list = {NULL, read_u32(r)};
    /* Each item takes at least its length field, so a count that lies cannot make us allocate much. */
    if (r->failed || list.count > (size_t)(r->end - r->at) / 4) {
        r->failed = true;
        list.count = 0;
    }
    list.items = calloc((size_t)list.count + 1, sizeof *list.items);
    if (!list.items) {
        r->failed = true;
        list.count = 0;
        return list;
    }
    for (uint32_t i = 0; i < list.count; i++) list.items[i] = read_text(r);
    return list;
}

bool reader_done(struct reader *r) { return !r->failed && r->at == r->end; }
