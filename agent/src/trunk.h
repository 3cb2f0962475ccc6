/* Many byte streams over one: a pipe into the sandbox and one out of it, to the socket where the agent's bridge listens. */
#ifndef PADDOCK_TRUNK_H
#define PADDOCK_TRUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRUNK_VERSION = 1,
    TRUNK_HEAD = 8, /* u16 channel, u8 kind, u8 zero, u32 length */
    TRUNK_PIECE = 1 << 15,
    TRUNK_WINDOW = 1 << 18,
    TRUNK_CHANNELS = 512,
};

enum trunk_kind {
    TRUNK_HELLO = 1, /* the first of all, from inside: u32 version */
    TRUNK_OPEN,      /* from outside: another connection to the socket */
    TRUNK_DATA,
    TRUNK_END,    /* no more bytes from here */
    TRUNK_CLOSE,  /* it is over; the number is free again when both have said so */
    TRUNK_WINDOW_MORE, /* u32: so many more bytes may come */
    TRUNK_PING,   /* from outside: somebody is there */
};

/* paddock-agent trunk PATH [FILTER [SECONDS]]: until the other side has gone, or has been silent for twice as long.
   Answers the exit code. */
int trunk_main(int argc, char **argv);

/* The parts of it, for the fuzzer. */
bool trunk_start(int in, int out, const char *path);
bool trunk_over(void);
void trunk_end(void);

#endif
