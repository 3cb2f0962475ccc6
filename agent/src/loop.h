/* One thread, one epoll: who is called when a descriptor is ready. */
#ifndef PADDOCK_LOOP_H
#define PADDOCK_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

struct source {
    int fd; /* -1: none */
    uint32_t events;
    void (*ready)(struct source *source, uint32_t events);
};

#define owner_of(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

bool loop_start(void);
bool loop_add(struct source *source, int fd, uint32_t events, void (*ready)(struct source *, uint32_t));
void loop_change(struct source *source, uint32_t events);
void loop_remove(struct source *source);
/* Removes it and closes its descriptor. */
void loop_close(struct source *source);
/* Frees memory that holds a source, once no event that is already fetched can point to it. */
void loop_free(void *memory);
/* Waits at most this long (-1: for ever) and calls what is ready. Answers false when nothing was. `woken`: when the
   waiting was over. */
bool loop_turn(int timeout_ms, int64_t *woken);

/* Something to go on with in the next turn, after what is ready then. */
struct later {
    struct later *next;
    void (*call)(struct later *later);
    bool queued;
};
void loop_later(struct later *later);
void loop_not_later(struct later *later);

/* Milliseconds that only go forwards, and microseconds since the epoch. */
int64_t now_ms(void);
uint64_t wall_us(void);

/* A buffer for bytes that pass through; used by one function at a time, given back to the kernel when idle. */
enum { SCRATCH_SIZE = 1 << 16 };
uint8_t *scratch(void);
void scratch_release(void);
bool scratch_dirty(void);

#endif
