/* The agent in a machine that somebody else runs: started by a command, reached over a network. */
#ifndef PADDOCK_REMOTE_H
#define PADDOCK_REMOTE_H

#include <stdbool.h>

struct remote {
    int state, listen, ready; /* ready: the end of a pipe that the one who started us waits at */
    const char *token;
};

enum { EXIT_TAKEN = 3, EXIT_NO_USERS = 4 };

/* Goes into the background: the process that was started ends when `remote_ready` is called, or with an error. */
bool remote_prepare(const char *port, const char *state, const char *token, struct remote *remote);
void remote_ready(struct remote *remote);
/* Whether this process may become every user, which MODE_RANGE stands on. */
bool remote_has_users(void);

#endif
