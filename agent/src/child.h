/* The way of a forked child to its program. */
#ifndef PADDOCK_CHILD_H
#define PADDOCK_CHILD_H

#include "identity.h"

struct launch {
    char *const *argv;
    char *const *env;
    char *const *shortcut; /* words that do the same as argv, if they can be run; NULL: none */
    const char *cwd; /* NULL: cwd_fd */
    int cwd_fd;
    const struct identity *identity;
    int stdio[3]; /* none of them 0, 1 or 2 */
    int report;   /* a pipe that closes on exec; struct launch_failure comes through it when there is no exec */
    bool terminal;
    bool strict; /* a program that cannot be run is a failure of the launch */
    const char *speaker; /* who says that a program was not found */
};

enum launch_stage { STAGE_IDENTITY = 1, STAGE_DIRECTORY, STAGE_FILTER, STAGE_EXEC, STAGE_PROGRAM };

struct launch_failure {
    int stage, error;
};

/* What the agent found when it started, for children. */
void child_defaults(void);
_Noreturn void child_run(const struct launch *launch);
const char *launch_failure_text(const struct launch_failure *failure);

#endif
