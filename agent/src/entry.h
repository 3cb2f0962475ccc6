/* What the protocol calls an entry: a file as somebody sees it. */
#ifndef PADDOCK_ENTRY_H
#define PADDOCK_ENTRY_H

#include <sys/stat.h>

#include "bytes.h"
#include "identity.h"

/* Names of owners, looked up once for many entries. */
struct labels {
    bool known;
    uint32_t uid, gid;
    char user[ACCOUNT_NAME], group[ACCOUNT_NAME];
};

void entry_write(struct writer *w, const char *path, const struct stat *found, const char *target,
                 const struct identity *identity, struct labels *labels);
/* Of `name` in a directory (AT_FDCWD), shown as `path`; with AT_SYMLINK_NOFOLLOW of a symlink itself. 0 or errno. */
int entry_write_at(struct writer *w, const char *path, int directory, const char *name, int flags,
                   const struct identity *identity, struct labels *labels);

#endif
