/* Users and groups as the sandbox's own /etc says. Those files belong to whoever is inside: nothing in them is trusted. */
#ifndef PADDOCK_ACCOUNTS_H
#define PADDOCK_ACCOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ACCOUNT_NAME = 64, ACCOUNT_PATH = 256 };

struct account {
    uint32_t uid, gid;
    char name[ACCOUNT_NAME], home[ACCOUNT_PATH], shell[ACCOUNT_PATH];
};

bool account_by_name(const char *name, struct account *account);
bool account_by_uid(uint32_t uid, struct account *account);
/* The groups that list this user, beside its own; at most `max`. */
unsigned account_groups(const char *name, gid_t *groups, unsigned max);
/* A name, or the number as text. */
void user_label(uint32_t uid, char label[ACCOUNT_NAME]);
void group_label(uint32_t gid, char label[ACCOUNT_NAME]);

#endif
