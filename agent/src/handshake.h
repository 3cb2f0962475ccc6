/* The head of an HTTP request to the bridge, taken apart without a copy more than needed. */
#ifndef PADDOCK_HANDSHAKE_H
#define PADDOCK_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "websocket.h"

enum { HANDSHAKE_MAX = 8192, TOKEN_MIN = 16, TOKEN_MAX = 128 };
enum purpose { PURPOSE_NONE, PURPOSE_LINK, PURPOSE_DIAL, PURPOSE_ACCEPT };
enum handshake_state { HANDSHAKE_PART, HANDSHAKE_BAD, HANDSHAKE_WHOLE };

struct handshake {
    char key[WS_KEY_SIZE];
    char token[TOKEN_MAX + 1]; /* empty: none was shown */
    enum purpose purpose;
    uint16_t port;
    uint8_t kind;
    bool upgrade; /* it asks for a WebSocket, as it should be asked for */
};

/* `head_length`: where what follows the head begins. Of the data nothing is changed. */
enum handshake_state handshake_read(const char *data, size_t length, struct handshake *shake, size_t *head_length);

#endif
