/* Paths inside the root that is being put together. The layers may hold links that a user of the sandbox made, so no
 * path is ever walked by the host's rules: each is resolved as if the new root were `/`. */
#ifndef PADDOCK_LAUNCH_INSIDE_H
#define PADDOCK_LAUNCH_INSIDE_H

#include <stdint.h>

void inside_belongs_to(uint64_t id);            /* whose the things are that are made here from now on */
void inside_begin(void);                        /* hold on to `root` on the stage, as it is mounted now */
void inside_end(void);
int inside_open(const char *path, int flags);   /* -1 and errno */
int inside_make(const char *path, int directory); /* an O_PATH descriptor; made, with its parents, where it is missing */
void inside_link(const char *text, const char *path);

#endif
