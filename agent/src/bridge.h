/* The agent over a network: WebSockets that carry frames, or the bytes of a port. docs/agent-protocol.md. */
#ifndef PADDOCK_BRIDGE_H
#define PADDOCK_BRIDGE_H

#include <stdbool.h>

/* A unix socket that listens at this path, in place of what an earlier start left there. -1 with errno. */
int bridge_door(const char *path);
/* `fd` listens; `token`: the file with the secret that every visitor must show. Read anew for each. */
bool bridge_listen(int fd, const char *token);

#endif
