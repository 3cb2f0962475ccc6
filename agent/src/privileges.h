/* What the agent may do, and what whoever it starts may do: less. */
#ifndef PADDOCK_PRIVILEGES_H
#define PADDOCK_PRIVILEGES_H

#include <stdbool.h>

/* Once at start, in this order. Each answers false with errno set. */
bool user_namespace_make(void);
bool privileges_drop(void);
bool filters_read(int fd);
bool agent_filter_install(void);

/* Around single file operations in MODE_SINGLE. */
bool capabilities_lower(void);
bool capabilities_raise(void);

/* In children. */
bool bounding_set_limit(void);
bool capabilities_clear(void);
bool child_filter_install(void);

#endif
