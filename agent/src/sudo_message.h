/* The one message that asks for a command as another user. It comes from inside: everything in it may lie. */
#ifndef PADDOCK_SUDO_MESSAGE_H
#define PADDOCK_SUDO_MESSAGE_H

#include "bytes.h"
#include "wire.h"

enum { SUDO_PAYLOAD_MAX = 1 << 18, SUDO_DESCRIPTORS = 4 };

struct sudo_order {
    struct list argv, env; /* items to be freed */
    const char *user;
};

/* The length of the frame that begins so, or 0: it cannot be one. */
size_t sudo_frame_length(const uint8_t head[HEADER_SIZE], uint8_t type);
bool sudo_order_read(uint8_t *payload, size_t length, struct sudo_order *order);
void sudo_order_drop(struct sudo_order *order);

#endif
