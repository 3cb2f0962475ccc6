#include "websocket.h"

#include <string.h>

enum { BLOCK = 64, DIGEST = 20 };

static uint32_t turned(uint32_t value, unsigned bits) { return value << bits | value >> (32 - bits); }

static void sha1_block(uint32_t state[5], const uint8_t *block) {
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    }
    for (int i = 16; i < 80; i++) w[i] = turned(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? (b & c) | (~b & d)
                     : i < 40 ? b ^ c ^ d
                     : i < 60 ? (b & c) | (b & d) | (c & d)
                              : b ^ c ^ d;
        static const uint32_t rounds[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
        uint32_t next = turned(a, 5) + f + e + rounds[i / 20] + w[i];
        e = d;
        d = c;
        c = turned(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Of less than two blocks, which is all that a handshake needs. SHA-1 guards nothing here: the RFC asks for it. */
static void sha1(const uint8_t *data, size_t length, uint8_t digest[DIGEST]) {
    uint32_t state[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t padded[2 * BLOCK] = {0};
    size_t blocks = length + 9 > BLOCK ? 2 : 1;
    memcpy(padded, data, length);
    padded[length] = 0x80;
    padded[blocks * BLOCK - 2] = (uint8_t)(length * 8 >> 8);
    padded[blocks * BLOCK - 1] = (uint8_t)(length * 8);
    for (size_t i = 0; i < blocks; i++) sha1_block(state, padded + i * BLOCK);
    for (int i = 0; i < DIGEST; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(const uint8_t *data, size_t length, char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t bits = (uint32_t)data[i] << 16;
        if (i + 1 < length) bits |= (uint32_t)data[i + 1] << 8;
        if (i + 2 < length) bits |= data[i + 2];
        *text++ = letters[bits >> 18];
        *text++ = letters[bits >> 12 & 63];
        *text++ = i + 1 < length ? letters[bits >> 6 & 63] : '=';
        *text++ = i + 2 < length ? letters[bits & 63] : '=';
    }
    *text = 0;
}

void ws_accept(const char key[WS_KEY_SIZE], char accept[WS_ACCEPT_SIZE]) {
    static const char constant[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    uint8_t joined[WS_KEY_SIZE + sizeof constant - 1], digest[DIGEST];
    memcpy(joined, key, WS_KEY_SIZE);
    memcpy(joined + WS_KEY_SIZE, constant, sizeof constant - 1);
    sha1(joined, sizeof joined, digest);
    base64(digest, sizeof digest, accept);
}

int ws_head_read(const uint8_t *data, size_t length, struct ws_head *head) {
    if (length < 2) return 0;
    uint8_t opcode = data[0] & 15, small = data[1] & 127;
    bool control = opcode >= 8, whole = data[0] & 128;
    if (data[0] & 0x70 || !(data[1] & 128)) return -1; /* an extension that nobody agreed on; or no mask */
    if (opcode > WS_PONG || (opcode > WS_BINARY && !control)) return -1;
    if ((control || opcode == WS_TEXT) && (!whole || small > WS_SMALL)) return -1;
    int size = 2 + (small == 126 ? 2 : small == 127 ? 8 : 0);
    if (length < (size_t)size + 4) return 0;
    head->opcode = opcode;
    head->length = size == 2 ? small : 0;
    for (int i = 2; i < size; i++) head->length = head->length << 8 | data[i];
    if (head->length > INT64_MAX) return -1;
    memcpy(head->mask, data + size, 4);
    return size + 4;
}

size_t ws_head_write(uint8_t *at, uint8_t opcode, size_t length) {
    at[0] = (uint8_t)(128 | opcode);
    if (length <= WS_SMALL) {
        at[1] = (uint8_t)length;
        return 2;
    }
    at[1] = 126;
    at[2] = (uint8_t)(length >> 8);
    at[3] = (uint8_t)length;
    return 4;
}

void ws_unmask(uint8_t *data, size_t length, const uint8_t mask[4], uint64_t offset) {
    for (size_t i = 0; i < length; i++) data[i] ^= mask[(offset + i) & 3];
}
