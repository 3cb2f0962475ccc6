/* A server that is connected: frames in, answers out, and the requests that are still open. */
#ifndef PADDOCK_CONNECTION_H
#define PADDOCK_CONNECTION_H

#include "bytes.h"
#include "loop.h"
#include "wire.h"

enum { MAX_CONNECTIONS = 32, MAX_OPEN_REQUESTS = 1024, QUEUE_HIGH = 1 << 18, QUEUE_FULL = 1 << 21 };

struct outgoing;
struct token;
struct request;

struct connection {
    struct source source;
    struct connection *next;
    uint8_t *in;
    size_t in_length, in_room;
    struct outgoing *out_first, *out_last;
    size_t out_bytes;
    struct request *requests; /* newest first */
    uint32_t request_count;
    struct token *tokens;
    uint32_t last_token;
    bool greeted, takes_descriptors, takes_details, draining, dead;
};

/* What an open request can do. `stop` lets go of all it holds; `drained`: there is room in the queue again. */
struct request_kind {
    void (*stop)(struct request *request);
    void (*drained)(struct request *request);
};

/* The head of every open request. */
struct request {
    const struct request_kind *kind;
    struct connection *connection;
    struct request *next, *previous;
    uint32_t id;
};

bool connections_listen(int fd);
/* Takes over a connected socket that does not block. */
void connection_open(int fd);
void connection_end(struct connection *connection);
/* Ends it when the loop comes round: safe in the middle of one of its requests. */
void connection_break(struct connection *connection);
/* A queue this long is left alone by whoever has more to say. */
bool connection_busy(const struct connection *connection);

/* An answer: begin, write the payload, send. `fd` travels with it and is closed here; -1: none. */
struct writer answer_begin(void);
void answer_send(struct connection *connection, struct writer *w, uint8_t type, uint32_t id, int fd);
void answer_ok(struct connection *connection, uint32_t id);
void answer_error(struct connection *connection, uint32_t id, int error, const char *message);
/* Whole frames that somebody else has made. */
void answer_raw(struct connection *connection, const uint8_t *data, size_t length);

/* Memory of `size` bytes that begins with a struct request; NULL after answering with an error. */
void *request_open(struct connection *connection, uint32_t id, const struct request_kind *kind, size_t size);
void request_close(struct request *request);
void request_fail(struct request *request, int error, const char *message);
struct request *request_find(struct connection *connection, uint32_t id);

/* In requests.c: one whole frame. False: it breaks the protocol. */
bool request_handle(struct connection *connection, uint8_t type, uint32_t id, uint8_t *payload, size_t length);

#endif
