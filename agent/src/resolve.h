/* Paths, resolved once and held by descriptors. Neither a path nor a symlink that somebody put in its way leads to the
   agent itself: the links in /proc that jump to open files are not followed, and /proc/self, which is the agent here
   and not whoever asked, is closed. */
#ifndef PADDOCK_RESOLVE_H
#define PADDOCK_RESOLVE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "identity.h"

/* open(); -1 with errno. */
int open_path(const char *path, int flags, mode_t bits);
int open_below(int folder, const char *name, int flags, mode_t bits);

/* Where something is: the directory, and the name in it, which may be a symlink or nothing yet. */
struct spot {
    int folder;
    char name[NAME_MAX + 1]; /* "." for a path that ends with a directory, as "/" and "/a/.." do */
};

/* 0 or errno; then to be closed. */
int spot_find(const char *path, struct spot *spot);
void spot_close(struct spot *spot);

/* Makes what is missing of a path, down to its end. 0 or errno. What is made becomes the owner's; NULL: stays ours. */
int make_directories(const char *path, mode_t last_bits, const struct identity *owner, bool *created);
/* Everything above the last part. 0 or errno. */
int make_parents(const char *path, const struct identity *owner);
/* ENOENT where something is to be made in a directory that exists: a kernel file system that lets nobody. */
int creation_error(int error, int folder);

#endif
