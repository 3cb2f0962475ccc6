/* Small texts put together without stdio, which would double the size of the agent. */
#ifndef PADDOCK_TEXT_H
#define PADDOCK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NUMBER_SIZE = 21, NAME_SIZE = 64 };

/* Both write at `at`, end with a NUL, and answer with where that is. */
char *put_number(char *at, uint64_t value);
char *put_text(char *at, const char *text);
/* The decimal number at `*at`, which then points behind it. */
bool take_number(const char **at, uint64_t *value);
bool starts_with(const char *text, const char *prefix);
/* The value of a variable in a list of K=V; NULL: not there. */
const char *env_value(char *const *env, const char *name);
/* The first line of a small file, as a number; false: not there, or none. */
bool read_number_file(const char *path, int64_t *value);
bool write_file(const char *path, const char *text);

#endif
