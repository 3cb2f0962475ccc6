/* A forked child that does one long file operation as a user; what it says is passed on as it is. */
#ifndef PADDOCK_WORKER_H
#define PADDOCK_WORKER_H

#include "connection.h"
#include "identity.h"

enum { MAX_WORKERS = 32, WORKER_FRAME = 1 << 16 };

/* Runs in the child, and tells with the functions below. */
struct job {
    void (*run)(struct job *job);
    const struct identity *identity;
    const char *path, *other;
    uint32_t depth, max;
    uint32_t id; /* set by worker_start */
    int out;
};

void worker_start(struct connection *c, uint32_t id, struct job *job);
void worker_reaped(pid_t pid);
/* One frame; ends the worker when the agent is gone. */
void worker_say(struct job *job, struct writer *w, uint8_t type);
void worker_fail(struct job *job, int error, const char *message);

#endif
