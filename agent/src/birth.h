/* How the agent begins where nobody can hand it descriptors by inheritance: as the first process of a container. */
#ifndef PADDOCK_BIRTH_H
#define PADDOCK_BIRTH_H

#include <stdbool.h>

/* Connects to the server that waits at this path, and takes its listener and its filter from it. False with errno. */
bool birth(const char *path, int *listener, int *filter);
/* An open directory for records and output, made where it is missing. -1 with errno. At the first start of all, what the
   image may lack is made too: the user, its home, /workspace, /tmp. */
int birth_place(const char *path);

#endif
