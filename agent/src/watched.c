#include "watched.h"

#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

enum { FREE = 0, GONE = 1, FIRST_HASH = 2 };

/* Where this number is, or should be. */
static size_t position(const struct places *places, int number) {
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (places->items[middle].number < number) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_at(const struct places *places, size_t index, int number) {
    return index < places->count && places->items[index].number == number;
}

const char *place_path(const struct places *places, int number) {
    size_t index = position(places, number);
    return is_at(places, index, number) ? places->items[index].path : NULL;
}

bool place_put(struct places *places, int number, const char *path) {
    size_t index = position(places, number);
    char *copy = strdup(path);
    if (!copy) return false;
    if (is_at(places, index, number)) {
        free(places->items[index].path);
        places->items[index].path = copy;
        return true;
    }
    if (places->count == places->room) {
        size_t room = places->room ? places->room * 2 : 8;
        struct place *grown = room > MAX_WATCHED ? NULL : realloc(places->items, room * sizeof *grown);
        if (!grown) {
            free(copy);
            return false;
        }
        places->items = grown;
        places->room = room;
    }
    memmove(&places->items[index + 1], &places->items[index], (places->count - index) * sizeof *places->items);
    places->items[index] = (struct place){number, copy};
    places->count++;
    return true;
}

void place_remove(struct places *places, int number) {
    size_t index = position(places, number);
    if (!is_at(places, index, number)) return;
    free(places->items[index].path);
    places->count--;
    memmove(&places->items[index], &places->items[index + 1], (places->count - index) * sizeof *places->items);
}

void places_forget(struct places *places, const char *path, int inotify) {
    size_t length = strlen(path), kept = 0;
    for (size_t i = 0; i < places->count; i++) {
        struct place place = places->items[i];
        if (strncmp(place.path, path, length) == 0 && (place.path[length] == 0 || place.path[length] == '/')) {
            inotify_rm_watch(inotify, place.number);
            free(place.path);
        } else {
            places->items[kept++] = place;
        }
    }
    places->count = kept;
}

void places_drop(struct places *places) {
    for (size_t i = 0; i < places->count; i++) free(places->items[i].path);
    free(places->items);
    *places = (struct places){0};
}

/* FNV-1a, over the directory and the name. */
static uint64_t hash_of(int directory, const char *name) {
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)(unsigned)directory * 0x9e3779b97f4a7c15u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash < FIRST_HASH ? hash + FIRST_HASH : hash;
}

/* The slot that holds it, else the first one that could; only with at least one slot free. */
static size_t slot_of(const struct names *names, uint64_t hash) {
    size_t at = (size_t)(hash >> 7) & (names->room - 1), gone = names->room;
    while (names->slots[at] != FREE && names->slots[at] != hash) {
        if (names->slots[at] == GONE && gone == names->room) gone = at;
        at = (at + 1) & (names->room - 1);
    }
    return names->slots[at] == hash || gone == names->room ? at : gone;
}

static bool grow(struct names *names) {
    struct names grown = {NULL, 0, names->room ? names->room * 2 : 64};
    if (grown.room > MAX_NAMES) return false;
    grown.slots = calloc(grown.room, sizeof *grown.slots);
    if (!grown.slots) return false;
    for (size_t i = 0; i < names->room; i++) {
        if (names->slots[i] < FIRST_HASH) continue;
        grown.slots[slot_of(&grown, names->slots[i])] = names->slots[i];
        grown.used++;
    }
    free(names->slots);
    *names = grown;
    return true;
}

bool name_add(struct names *names, int directory, const char *name) {
    uint64_t hash = hash_of(directory, name);
    /* With no room for more every name counts as new: a rename onto an old one is then told as a creation. */
    if ((names->used + 1) * 4 > names->room * 3 && !grow(names)) return true;
    size_t at = slot_of(names, hash);
    if (names->slots[at] == hash) return false;
    if (names->slots[at] == FREE) names->used++;
    names->slots[at] = hash;
    return true;
}

void name_remove(struct names *names, int directory, const char *name) {
    if (!names->room) return;
    uint64_t hash = hash_of(directory, name);
    size_t at = slot_of(names, hash);
    if (names->slots[at] == hash) names->slots[at] = GONE;
}

void names_drop(struct names *names) {
    free(names->slots);
    *names = (struct names){0};
}
