/* The trunk under sanitizers: frames from outside, mutated, while those inside read, write and leave as they like.
   trunk ITERATIONS SEED; says how many inputs were given and how many trunks ended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "identity.h"
#include "loop.h"
#include "trunk.h"

enum { MOST_GUESTS = 16 };

enum mode mode = MODE_PLAIN;
int user_namespace = -1;

static uint64_t state = 1;
static uint8_t known[4];
static int guests[MOST_GUESTS], guest_count;

static uint32_t chance(uint32_t most) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % most;
}

/* As a server would, mostly: what is open is used, what has ended is closed. */
static uint8_t next_kind(uint32_t number) {
    static const uint8_t kinds[] = {TRUNK_DATA, TRUNK_DATA, TRUNK_DATA, TRUNK_DATA, TRUNK_WINDOW_MORE, TRUNK_PING, TRUNK_END};
    uint8_t kind = kinds[chance(sizeof kinds)];
    if (!chance(300)) return (uint8_t)chance(9);
    if (!known[number]) return known[number] = TRUNK_OPEN;
    if (known[number] == TRUNK_END) {
        known[number] = 0;
        return TRUNK_CLOSE;
    }
    if (kind == TRUNK_END) known[number] = TRUNK_END;
    return kind;
}

static size_t seed_frame(uint8_t *at) {
    uint32_t number = chance(4);
    uint8_t kind = next_kind(number);
    uint32_t length = kind == TRUNK_DATA ? 1 + chance(chance(4) ? 100 : 3000) : kind == TRUNK_WINDOW_MORE ? 4 : 0;
    memset(at, 0, TRUNK_HEAD + length);
    at[0] = kind == TRUNK_PING ? 0 : (uint8_t)number;
    at[2] = kind;
    at[4] = (uint8_t)length;
    at[5] = (uint8_t)(length >> 8);
    return TRUNK_HEAD + length;
}

static size_t mutate(uint8_t *data, size_t length) {
    if (chance(3)) return length;
    uint32_t at = chance((uint32_t)length);
    switch (chance(3)) {
        case 0: data[at] ^= (uint8_t)(1 << chance(8)); return length;
        case 1: data[at] = (uint8_t)chance(256); return length;
        default: return at;
    }
}

static void visit(int listener) {
    uint8_t data[4096] = {0};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && guest_count < MOST_GUESTS) guests[guest_count++] = fd;
    else if (fd >= 0) close(fd);
    for (int i = 0; i < guest_count; i++) {
        if (chance(2)) while (read(guests[i], data, sizeof data) > 0) continue;
        if (!chance(3) && send(guests[i], data, 1 + chance(sizeof data), MSG_NOSIGNAL) < 0) errno = 0;
        if (!chance(20)) shutdown(guests[i], SHUT_WR);
        if (chance(12)) continue;
        close(guests[i]);
        guests[i--] = guests[--guest_count];
    }
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool done = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 8) == 0;
    return done ? fd : -1;
}

static void begin(int pair[3], const char *path) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) abort();
    memset(known, 0, sizeof known);
    pair[2] = dup(pair[0]);
    if (pair[2] < 0 || !trunk_start(pair[0], pair[2], path)) abort();
}

static void turn(int peer, bool reads) {
    uint8_t data[8192];
    int64_t woken;
    for (int i = 0; i < 20 && !trunk_over() && loop_turn(0, &woken); i++) {
        while (reads && read(peer, data, sizeof data) > 0) continue;
    }
}

int main(int argc, char **argv) {
    long iterations = argc > 1 ? atol(argv[1]) : 100000, ended = 0;
    char folder[] = "/tmp/paddock-fuzz-XXXXXX", path[64];
    int pair[3];
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (!state || !loop_start() || !mkdtemp(folder)) return 2;
    snprintf(path, sizeof path, "%s/door", folder);
    int listener = listen_at(path);
    if (listener < 0) return 2;
    begin(pair, path);
    for (long i = 0; i < iterations; i++) {
        uint8_t data[4 * (TRUNK_HEAD + 3000)];
        size_t length = 0;
        for (uint32_t frames = 1 + chance(3); frames; frames--) length += seed_frame(data + length);
        if (!chance(40)) length = mutate(data, length);
        if (send(pair[1], data, length, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != EAGAIN) return 2;
        turn(pair[1], chance(6));
        visit(listener);
        turn(pair[1], true);
        if (!trunk_over() && chance(200)) continue;
        trunk_end();
        for (int end = 0; end < 3; end++) close(pair[end]);
        begin(pair, path);
        ended++;
    }
    printf("%ld inputs, %ld trunks\n", iterations, ended);
    trunk_end();
    while (guest_count) close(guests[--guest_count]);
    unlink(path);
    rmdir(folder);
    return 0;
}
