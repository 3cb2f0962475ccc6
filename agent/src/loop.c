#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32 };

static int epoll = -1;
static void **graves;
static size_t grave_count, grave_room;
static struct later *laters;
static uint8_t *scratch_memory;
static bool scratch_used;

bool loop_start(void) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    void *memory = mmap(NULL, SCRATCH_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch_memory = memory == MAP_FAILED ? NULL : memory;
    return epoll >= 0 && scratch_memory;
}

bool loop_add(struct source *source, int fd, uint32_t events, void (*ready)(struct source *, uint32_t)) {
    struct epoll_event event = {.events = events, .data = {.ptr = source}};
    *source = (struct source){fd, events, ready};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return true;
    source->fd = -1;
    return false;
}

void loop_change(struct source *source, uint32_t events) {
    struct epoll_event event = {.events = events, .data = {.ptr = source}};
    if (source->fd < 0 || source->events == events) return;
    source->events = events;
    epoll_ctl(epoll, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct source *source) {
    if (source->fd >= 0) epoll_ctl(epoll, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = -1;
}

void loop_close(struct source *source) {
    int fd = source->fd;
    loop_remove(source);
    if (fd >= 0) close(fd);
}

void loop_free(void *memory) {
    if (grave_count == grave_room) {
        size_t room = grave_room ? grave_room * 2 : 16;
        void **grown = realloc(graves, room * sizeof *graves);
        if (!grown) return; /* lost, but never used after it is freed */
        graves = grown;
        grave_room = room;
    }
    graves[grave_count++] = memory;
}

static void bury(void) {
    while (grave_count) free(graves[--grave_count]);
}

void loop_later(struct later *later) {
    if (later->queued) return;
    later->queued = true;
    later->next = laters;
    laters = later;
}

void loop_not_later(struct later *later) {
    struct later **link = &laters;
    while (*link && *link != later) link = &(*link)->next;
    if (*link) *link = later->next;
    later->queued = false;
}

/* Those that are there now: what they queue waits for the next turn. */
static void call_later(void) {
    struct later *last = NULL, *later = laters;
    laters = NULL;
    while (later) { /* newest first in the list: turned round */
        struct later *next = later->next;
        later->next = last;
        last = later;
        later = next;
    }
    while (last) {
        later = last;
        last = later->next;
        bool wanted = later->queued;
        later->queued = false;
        if (wanted) later->call(later);
    }
}

bool loop_turn(int timeout_ms, int64_t *woken) {
    struct epoll_event events[BATCH];
    int count = epoll_wait(epoll, events, BATCH, laters ? 0 : timeout_ms);
    *woken = now_ms();
    for (int i = 0; i < count; i++) {
        struct source *source = events[i].data.ptr;
        if (source->fd >= 0) source->ready(source, events[i].events);
    }
    call_later();
    bury();
    return count > 0;
}

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint8_t *scratch(void) {
    scratch_used = true;
    return scratch_memory;
}

bool scratch_dirty(void) { return scratch_used; }

void scratch_release(void) {
    madvise(scratch_memory, SCRATCH_SIZE, MADV_DONTNEED);
    scratch_used = false;
}
