#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "privileges.h"
#include "text.h"

enum mode mode = MODE_PLAIN;
int user_namespace = -1;

/* The two users that every sandbox has, also one without an /etc/passwd. */
static bool built_in(const char *user, struct account *account) {
    bool root = strcmp(user, "root") == 0;
    if (!root && strcmp(user, "user") != 0) return false;
    *account = (struct account){.uid = root ? 0 : USER_UID, .gid = root ? 0 : USER_UID};
    put_text(account->name, user);
    put_text(account->home, root ? "/root" : "/home/user");
    put_text(account->shell, "/bin/sh");
    return true;
}

static bool by_number(const char *user, struct account *account) {
    uint64_t uid;
    const char *at = user;
    if (!take_number(&at, &uid) || *at || uid >= UINT32_MAX) return false;
    if (account_by_uid((uint32_t)uid, account)) return true;
    if (uid == 0) return built_in("root", account);
    if (uid == USER_UID) return built_in("user", account);
    *account = (struct account){.uid = (uint32_t)uid, .gid = (uint32_t)uid};
    put_number(account->name, uid);
    put_text(account->home, "/");
    put_text(account->shell, "/bin/sh");
    return true;
}

int identity_resolve(const char *user, struct identity *identity) {
    struct account *account = &identity->account;
    if (!account_by_name(user, account) && !by_number(user, account) && !built_in(user, account)) return EINVAL;
    /* Whatever its /etc/passwd says, the sandbox's root is root. */
    if (strcmp(user, "root") == 0) account->uid = account->gid = 0;
    identity->uid = account->uid;
    identity->gid = account->gid;
    identity->group_count = 0;
    if (mode == MODE_SINGLE && identity->uid != 0 && identity->uid != USER_UID) return EINVAL;
    if (mode == MODE_OWN && identity->uid != geteuid()) return EINVAL;
    if (mode == MODE_RANGE && identity->uid != 0) {
        identity->group_count = account_groups(account->name, identity->groups, MAX_GROUPS);
    }
    return 0;
}

/* Where a kernel has no ids of their own for files (gVisor), the effective ones do: real and saved stay root's, so nobody
 * inside may signal us meanwhile. Leaving 0, they take every effective capability with them. */
static bool files_as(uint32_t uid, uint32_t gid) {
    static int own_ids = -1;
    if (own_ids < 0) own_ids = setfsuid((uid_t)-1) >= 0;
    if (own_ids) {
        setfsgid(gid);
        setfsuid(uid);
        return (uint32_t)setfsuid((uid_t)-1) == uid && (uint32_t)setfsgid((gid_t)-1) == gid;
    }
    if (uid == 0 && setresuid((uid_t)-1, 0, (uid_t)-1) < 0) return false;
    if (uid == 0 && !capabilities_raise()) return false;
    if (setresgid((gid_t)-1, gid, (gid_t)-1) < 0) return false;
    return uid == 0 || setresuid((uid_t)-1, uid, (uid_t)-1) == 0;
}

int identity_enter(const struct identity *identity) {
    if (mode == MODE_PLAIN || mode == MODE_OWN || identity->uid == 0) return 0;
    if (mode == MODE_SINGLE) return capabilities_lower() ? 0 : EPERM;
    if (setgroups(identity->group_count, identity->groups) < 0) return EINVAL;
    /* Leaving 0, the file system uid takes the capabilities over files with it. */
    if (files_as(identity->uid, identity->gid)) return 0;
    identity_leave(identity);
    return EINVAL;
}

void identity_leave(const struct identity *identity) {
    if (mode == MODE_PLAIN || mode == MODE_OWN || identity->uid == 0) return;
    if (mode == MODE_SINGLE) {
        if (!capabilities_raise()) abort();
        return;
    }
    if (!files_as(0, 0) || setgroups(0, NULL) < 0) abort();
}

bool identity_become(const struct identity *identity) {
    if (mode == MODE_PLAIN || mode == MODE_OWN) return true;
    if (mode == MODE_SINGLE) {
        if (identity->uid == 0) return true;
        /* Entering gives every capability over the new namespace; the program that follows gets none of them. */
        return setns(user_namespace, CLONE_NEWUSER) == 0 && bounding_set_limit() && capabilities_clear();
    }
    if (identity->uid == 0) return true;
    return setgroups(identity->group_count, identity->groups) == 0 &&
           setresgid(identity->gid, identity->gid, identity->gid) == 0 &&
           setresuid(identity->uid, identity->uid, identity->uid) == 0;
}

bool identity_own(const struct identity *identity, int folder, const char *name, int flags) {
    return mode != MODE_RANGE || fchownat(folder, name, identity->uid, identity->gid, flags) == 0;
}

uint32_t identity_sees(const struct identity *identity, uint32_t number) {
    return mode == MODE_SINGLE && identity->uid == USER_UID && number == 0 ? USER_UID : number;
}
