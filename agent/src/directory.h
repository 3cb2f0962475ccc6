/* Reading a directory without stdio or allocation. */
#ifndef PADDOCK_DIRECTORY_H
#define PADDOCK_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct directory {
    int fd; /* the caller's */
    int error;
    uint8_t type; /* of the last name, DT_UNKNOWN where the file system does not tell */
    size_t at, have;
    _Alignas(8) char buffer[8192];
};

void directory_begin(struct directory *directory, int fd);
void directory_again(struct directory *directory);
/* The next name, but never "." or ".."; NULL at the end, or with `error` set. Valid until the next call. */
const char *directory_next(struct directory *directory);

/* Closes every descriptor from this one on. */
void close_from(int first);
/* And up to this one. */
void close_between(int first, int last);

#endif
