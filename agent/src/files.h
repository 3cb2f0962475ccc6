/* What the file requests share. */
#ifndef PADDOCK_FILES_H
#define PADDOCK_FILES_H

#include "connection.h"
#include "identity.h"
#include "worker.h"

/* Resolves the user and enters its rights; false after answering with an error. The caller leaves them. */
bool path_begin(struct connection *c, uint32_t id, const char *user, const char *path, struct identity *identity);
void answer_path_error(struct connection *c, uint32_t id, int error);
/* Resolves an owner, if one is named; false after answering that there is none. */
bool owner_find(struct connection *c, uint32_t id, const char *owner, struct identity *identity);
bool is_root_directory(const char *path);

/* These attributes (names and values in turn) instead of all whose names begin so. 0 or errno. */
int attributes_replace(int fd, const char *prefix, const struct list *wanted);

/* Jobs for workers. */
void job_remove(struct job *job);
void job_move(struct job *job);
/* Removes a directory and all below it, never through a symlink. 0 or errno. */
int remove_tree(int directory, const char *name);
/* Copies what is there, as it is. 0 or errno. */
int copy_tree(const char *source, const char *destination);

#endif
