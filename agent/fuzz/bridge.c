/* The bridge's parsers under sanitizers: heads of requests, and frames that a relay gets from outside, both mutated.
   bridge ITERATIONS SEED; says how many heads were whole and how many relays ended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "handshake.h"
#include "ports.h"
#include "relay.h"

static uint64_t state = 1;

static uint32_t chance(uint32_t most) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % most;
}

int port_connect(uint16_t port, bool version6) {
    (void)port, (void)version6;
    errno = ECONNREFUSED;
    return -1;
}

void relay_left_door(struct relay *relay) { (void)relay; }

static size_t mutate(uint8_t *data, size_t length) {
    for (uint32_t i = chance(4); i && length; i--) {
        uint32_t at = chance((uint32_t)length);
        switch (chance(4)) {
            case 0: data[at] ^= (uint8_t)(1 << chance(8)); break;
            case 1: data[at] = (uint8_t)chance(256); break;
            case 2: return at;
            default: memmove(data + at, data, length - at); break;
        }
    }
    return length;
}

static bool fuzz_head(void) {
    static const char *const heads[] = {
        "GET /paddock/v1/link HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Paddock-Token: "
        "0123456789abcdef\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nrest",
        "GET /paddock/v1/dial/65535 HTTP/1.1\r\nx-paddock-token:\r\nupgrade:websocket\r\n\r\n",
        "GET /paddock/v1/accept/80/1 HTTP/1.1\r\nA:b\r\n\r\n",
    };
    const char *head = heads[chance(3)];
    size_t length = strlen(head), used, behind = 0;
    uint8_t *exact = malloc(length);
    struct handshake shake;
    if (!exact) abort();
    memcpy(exact, head, length);
    used = mutate(exact, length);
    uint8_t *cut = malloc(used ? used : 1);
    if (!cut) abort();
    memcpy(cut, exact, used);
    enum handshake_state found = handshake_read((const char *)cut, used, &shake, &behind);
    if (found == HANDSHAKE_WHOLE && (behind > used || strlen(shake.token) > TOKEN_MAX)) abort();
    free(cut);
    free(exact);
    return found == HANDSHAKE_WHOLE;
}

static size_t seed_frame(uint8_t *at) {
    static const uint8_t opcodes[] = {WS_MORE, WS_TEXT, WS_BINARY, WS_BINARY, WS_CLOSE, WS_PING, WS_PONG};
    uint8_t opcode = opcodes[chance(sizeof opcodes)];
    size_t length = opcode == WS_TEXT ? 3 : chance(chance(3) ? 126 : 2000);
    if (opcode > WS_BINARY && length > WS_SMALL) length = WS_SMALL;
    size_t head = ws_head_write(at, opcode, length);
    at[1] |= 128;
    for (size_t i = 0; i < 4; i++) at[head + i] = (uint8_t)chance(256);
    for (size_t i = 0; i < length; i++) at[head + 4 + i] = (uint8_t)chance(256);
    if (opcode == WS_TEXT) {
        memcpy(at + head + 4, "end", 3);
        ws_unmask(at + head + 4, 3, at + head, 0);
    }
    return head + 4 + length;
}

static bool drained(int peer) {
    uint8_t data[8192];
    ssize_t got;
    while ((got = read(peer, data, sizeof data)) > 0) continue;
    return got < 0 && errno == EAGAIN;
}

static void open_relay(int peers[2]) {
    int outer[2], inner[2];
    int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    if (socketpair(AF_UNIX, kind, 0, outer) < 0 || socketpair(AF_UNIX, kind, 0, inner) < 0) abort();
    peers[0] = outer[1];
    peers[1] = inner[1];
    struct relay *relay = relay_open(outer[0], NULL, 0);
    if (!relay) abort();
    if (chance(20)) {
        relay_start(relay, inner[0]);
        return;
    }
    close(inner[0]);
    relay_dial(relay, 1);
}

int main(int argc, char **argv) {
    long iterations = argc > 1 ? atol(argv[1]) : 100000, whole = 0, ended = 0;
    int64_t woken;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (!state || !loop_start()) return 2;
    int peers[2];
    open_relay(peers);
    for (long i = 0; i < iterations; i++) {
        whole += fuzz_head();
        uint8_t data[4 * 2100];
        size_t length = 0;
        for (uint32_t frames = 1 + chance(3); frames; frames--) length += seed_frame(data + length);
        length = mutate(data, length);
        if (send(peers[0], data, length, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET) return 2;
        if (!chance(5) && send(peers[1], data, chance(500), MSG_NOSIGNAL) < 0 && errno != EPIPE) return 2;
        while (loop_turn(0, &woken)) continue;
        drained(peers[1]);
        if (drained(peers[0]) && chance(50)) continue;
        close(peers[0]);
        while (loop_turn(0, &woken)) continue;
        close(peers[1]);
        open_relay(peers);
        ended++;
    }
    printf("%ld inputs, %ld whole heads, %ld relays\n", iterations, whole, ended);
    close(peers[0]);
    close(peers[1]);
    while (loop_turn(0, &woken)) continue;
    return 0;
}
