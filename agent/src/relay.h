/* Bytes between a WebSocket from outside and a socket inside, both ways, at the pace of the slower end. */
#ifndef PADDOCK_RELAY_H
#define PADDOCK_RELAY_H

#include "loop.h"
#include "websocket.h"

enum { RELAY_ROOM = 16384, MAX_RELAYS = 512 };

struct relay {
    struct source outer, inner; /* inner.fd is -1 until there is one */
    struct relay *next, *previous;
    struct relay *queued; /* the next that waits at the same door */
    uint8_t in[RELAY_ROOM]; /* what has come from outside and is not taken yet */
    size_t in_length, plain; /* `plain`: so many bytes at the front are unmasked data for the inner socket */
    struct ws_head head;
    uint64_t taken; /* of the frame that `head` began */
    bool in_frame;
    uint8_t *out; /* what the outer socket would not take yet */
    size_t out_length, out_at;
    uint16_t port;
    uint8_t kind;
    bool dialing, second, waiting;
    bool end_received, end_done, end_sent, closing;
    bool deaf; /* nobody inside reads any more */
};

/* Takes over an upgraded connection and what came behind its head (at most RELAY_ROOM); NULL: too many, all is closed. */
struct relay *relay_open(int outer, const uint8_t *early, size_t early_length);
/* Tell the other side "open", and let bytes flow to and from this socket, which does not block. */
void relay_start(struct relay *relay, int inner);
/* Tell the other side "waiting": the port is taken, and whoever connects to it next is its. */
void relay_waits(struct relay *relay);
/* Tell the other side "error" and the number, and end it. */
void relay_refuse(struct relay *relay, int error);
/* Connect to a port inside, then start or refuse. */
void relay_dial(struct relay *relay, uint16_t port);

/* In bridge.c: a relay that waits for somebody to connect is gone. */
void relay_left_door(struct relay *relay);

#endif
