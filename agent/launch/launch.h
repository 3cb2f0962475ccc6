/* The launcher: makes the namespaces and the file system of one sandbox and becomes its agent.
 *
 * It carries out a plan that the server wrote: a list of words, checked here only as far as a mistake could do harm.
 * Everything happens in a mount namespace of its own, so that whatever ends the sandbox, however it ends, also ends
 * every mount, loop device and network namespace that was made for it. */
#ifndef PADDOCK_LAUNCH_H
#define PADDOCK_LAUNCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The descriptors that the server hands over. */
enum { PLAN_FD = 0, CONTROL_FD = 3, LISTEN_FD = 4, FILTER_FD = 5, STATE_FD = 6 };

#define PLAN_MAX (256u * 1024u)

/* plan.c: the words, one after the other. */
struct plan {
    char *text;
    size_t length;
    size_t at;
};

void plan_read(struct plan *plan, int fd);
const char *plan_next(struct plan *plan);   /* NULL at the end */
const char *plan_word(struct plan *plan);   /* the argument of a verb: fails at the end */
uint64_t plan_number(struct plan *plan);
uint64_t plan_octal(struct plan *plan);

/* fail.c: the one way to give up. Says where to the server, and exits. */
_Noreturn void fail(const char *step, const char *what);
_Noreturn void fail_with(int error, const char *step, const char *what);
void tell(const char *word, uint64_t number);

/* users.c */
struct id_map {
    uint64_t inside;
    uint64_t outside;
    uint64_t count;
};

int user_namespace(const struct id_map *users, const struct id_map *groups); /* a descriptor */
void map_ids(pid_t pid, const struct id_map *users, const struct id_map *groups);
void become_root(void);
void act_as(uint64_t id);

/* network.c */
void loopback_up(void);
void route_everything_home(void);
void load_rules(const char *program, const char *rules);

/* limits.c */
void limit(struct plan *plan);
void allowance(struct plan *plan);
void nice_all(struct plan *plan);

/* watch.c: another program under the same name, `paddock-launch watch`. */
_Noreturn void watch(void);

/* loop.c: a file as a block device that goes away with its last mount. Gives the device's path. */
int loop_attach(int image, char *device, size_t size);

/* mounts.c */
void stage_begin(const char *stage, int users);
int run_mount_verb(const char *verb, struct plan *plan);   /* 0: not one of these */
void stage_end(void);

#endif
