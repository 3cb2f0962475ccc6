/* What a watch knows: its directories, and which names are in them. */
#ifndef PADDOCK_WATCHED_H
#define PADDOCK_WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_WATCHED = 1 << 14, MAX_NAMES = 1 << 20 };

/* Directories by the number that inotify gave them. */
struct places {
    struct place {
        int number;
        char *path;
    } *items; /* by number */
    size_t count, room;
};

const char *place_path(const struct places *places, int number);
/* False: there is no room. */
bool place_put(struct places *places, int number, const char *path);
void place_remove(struct places *places, int number);
/* Those that are `path` or below it: no longer known, nor watched. */
void places_forget(struct places *places, const char *path, int inotify);
void places_drop(struct places *places);

/* Names as 64-bit hashes: enough to tell a new one from a known one. */
struct names {
    uint64_t *slots;
    size_t used, room; /* used: also the slots of names that are gone */
};

/* True: it was not known. */
bool name_add(struct names *names, int directory, const char *name);
void name_remove(struct names *names, int directory, const char *name);
void names_drop(struct names *names);

#endif
