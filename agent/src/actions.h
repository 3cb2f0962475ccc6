/* What requests ask for. requests.c takes the frames apart and calls these; each answers for itself. */
#ifndef PADDOCK_ACTIONS_H
#define PADDOCK_ACTIONS_H

#include "connection.h"

/* How a follower wants its output: at most so many bytes that it has not taken yet; and how long it may hold a process up. */
struct window {
    bool wanted;
    uint32_t bytes, hold_ms;
};

struct spawn_order {
    const char *process_id;
    struct list argv, env, shortcut;
    const char *cwd, *user, *label;
    const uint8_t *note;
    uint32_t note_length;
    uint8_t flags;
    uint16_t rows, cols;
    uint64_t hard_timeout_ms, spool_limit;
    struct window window;
};

void do_spawn(struct connection *c, uint32_t id, struct spawn_order *order);
void do_processes(struct connection *c, uint32_t id);
void do_process_get(struct connection *c, uint32_t id, const char *process_id);
void do_follow(struct connection *c, uint32_t id, const char *process_id, uint64_t out_offset, uint64_t err_offset, bool all,
               const struct window *window);
/* A follower has taken so many bytes. One that has ended meanwhile is none. */
void do_window(struct connection *c, uint32_t follow_id, uint32_t bytes);
void do_read_output(struct connection *c, uint32_t id, const char *process_id, uint8_t stream, uint64_t offset,
                    uint32_t limit);
void do_stdin(struct connection *c, uint32_t id, const char *process_id, const uint8_t *data, uint32_t length);
void do_close_stdin(struct connection *c, uint32_t id, const char *process_id);
/* `one`: to the process itself and not to its group; one that ends by it is not waited for by its children's output. */
void do_signal(struct connection *c, uint32_t id, const char *process_id, int32_t number, bool one);
void do_note(struct connection *c, uint32_t id, const char *process_id);
void do_resize(struct connection *c, uint32_t id, const char *process_id, uint16_t rows, uint16_t cols);
void do_wait(struct connection *c, uint32_t id, const char *process_id);

void do_stat(struct connection *c, uint32_t id, const char *user, const char *path, bool follow);
void do_list(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t depth, uint32_t max);
struct open_order {
    const char *user, *path;
    uint8_t how;
    uint32_t mode;
    const char *owner;      /* whose the file and its missing directories become; NULL: the user's own */
    const char *prefix;     /* of the attributes that are replaced; NULL: none are */
    struct list attributes; /* names and values in turn */
};
void do_open(struct connection *c, uint32_t id, const struct open_order *order);
void do_commit(struct connection *c, uint32_t id, uint32_t token);
void do_close(struct connection *c, uint32_t id, uint32_t token);
void do_mkdir(struct connection *c, uint32_t id, const char *user, const char *owner, const char *path, uint32_t mode);
void do_resolve(struct connection *c, uint32_t id, const char *user, const char *path);
void do_attributes(struct connection *c, uint32_t id, const char *user, const char *prefix, const struct list *paths);
void do_move(struct connection *c, uint32_t id, const char *user, const char *source, const char *destination);
void do_remove(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive);
void do_chmod(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t mode);
void do_watch(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive);
/* What this connection's watches have seen until now is told before the answer. */
void do_ping(struct connection *c, uint32_t id);
void do_pread(struct connection *c, uint32_t id, uint32_t token, uint64_t offset, uint32_t limit);
void do_pwrite(struct connection *c, uint32_t id, uint32_t token, uint64_t offset, const uint8_t *data, uint32_t length);

void do_dial(struct connection *c, uint32_t id, uint16_t port);
/* Bit 0 of the kind: ::1 instead of 127.0.0.1; bit 1: datagrams instead of a stream. */
void do_listen(struct connection *c, uint32_t id, uint16_t port, uint8_t kind);
void do_stats(struct connection *c, uint32_t id);
void do_stop_all(struct connection *c, uint32_t id);
void do_continue_all(struct connection *c, uint32_t id);
/* Only as the first process of its namespace: elsewhere everybody would be the whole machine. */
void do_kill_all(struct connection *c, uint32_t id);

/* The connection ends: what it had opened is closed, and what it had not committed is removed. */
void tokens_drop(struct connection *c);

#endif
