/* Whose rights something is done with. */
#ifndef PADDOCK_IDENTITY_H
#define PADDOCK_IDENTITY_H

#include "accounts.h"

enum mode {
    MODE_RANGE,  /* uid 0 of a user namespace with many ids */
    MODE_SINGLE, /* uid 0 of a user namespace with one id; `user` is the same id in a second namespace */
    MODE_PLAIN,  /* one id, whatever it is, for everybody */
    MODE_OWN,    /* one id, whatever it is, and nobody else */
};

enum { MAX_GROUPS = 32, USER_UID = 1000 };

struct identity {
    uint32_t uid, gid;
    gid_t groups[MAX_GROUPS];
    unsigned group_count;
    struct account account;
};

extern enum mode mode;
/* The second user namespace of MODE_SINGLE; -1: none. */
extern int user_namespace;

/* 0, or EINVAL: nobody here has this name or number. */
int identity_resolve(const char *user, struct identity *identity);
/* For a few file system calls of the agent itself. Enter answers 0 or an errno; leave cannot fail. */
int identity_enter(const struct identity *identity);
void identity_leave(const struct identity *identity);
/* For good: in a child. */
bool identity_become(const struct identity *identity);
/* What was just made by the sandbox's root becomes this identity's. With one id for all it is that already. False with
   errno. */
bool identity_own(const struct identity *identity, int folder, const char *name, int flags);
/* An owner as this identity sees it. */
uint32_t identity_sees(const struct identity *identity, uint32_t number);

#endif
