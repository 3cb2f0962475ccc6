/* What a call of sudo means: which command, for whom, in which environment. */
#ifndef PADDOCK_SUDO_COMMAND_H
#define PADDOCK_SUDO_COMMAND_H

#include "accounts.h"

struct sudo_call {
    const char *user;
    bool keep_environment, set_home, login, shell, list, nothing, help, version;
    char **assignments; /* VAR=value before the command */
    int assignment_count;
    char **command; /* NULL at the end */
};

/* NULL, or what is wrong. */
const char *sudo_call_read(int argc, char **argv, struct sudo_call *call);
/* Both in memory that stays; NULL: there is none. */
char **sudo_call_argv(const struct sudo_call *call, const struct account *target);
char **sudo_call_environment(const struct sudo_call *call, const struct account *target, char **env, char **argv);

#endif
