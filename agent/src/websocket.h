/* As much of RFC 6455 as the bridge needs: the key of a handshake, and the heads of frames. */
#ifndef PADDOCK_WEBSOCKET_H
#define PADDOCK_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WS_KEY_SIZE = 24, WS_ACCEPT_SIZE = 29, WS_HEAD_MAX = 14, WS_SMALL = 125 };
enum { WS_MORE = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

struct ws_head {
    uint64_t length;
    uint8_t mask[4];
    uint8_t opcode;
};

/* What a client's Sec-WebSocket-Key is answered with: 28 characters and a NUL. */
void ws_accept(const char key[WS_KEY_SIZE], char accept[WS_ACCEPT_SIZE]);
/* How many bytes the head at the front takes; 0: there are not enough yet; -1: it is none that a client may send. */
int ws_head_read(const uint8_t *data, size_t length, struct ws_head *head);
/* The head of a whole message to a client of at most 65,535 bytes; answers how long it is (2 or 4). */
size_t ws_head_write(uint8_t *at, uint8_t opcode, size_t length);
/* `offset`: where in its frame the data begins. */
void ws_unmask(uint8_t *data, size_t length, const uint8_t mask[4], uint64_t offset);

#endif
