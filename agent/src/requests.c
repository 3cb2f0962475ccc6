/* One frame taken apart and handed to whoever does it. Nothing here touches the system. */
#include <errno.h>
#include <stdlib.h>

#include "actions.h"

#ifndef PADDOCK_BUILD
#define PADDOCK_BUILD "unknown"
#endif

static bool ready(struct reader *r, struct connection *c, uint32_t id, bool *good) {
    *good = reader_done(r);
    if (*good && r->bad_text) answer_error(c, id, EINVAL, "a text holds a NUL");
    return *good && !r->bad_text;
}

static bool on_hello(struct connection *c, uint32_t id, struct reader *r) {
    uint32_t version = read_u32(r), features = read_u32(r);
    if (!reader_done(r) || c->greeted || version < WIRE_VERSION) return false;
    c->greeted = true;
    c->takes_descriptors = features & WIRE_FEATURE_DESCRIPTORS;
    c->takes_details = features & WIRE_FEATURE_DETAILS;
    struct writer w = answer_begin();
    write_u32(&w, WIRE_VERSION);
    write_u32(&w, WIRE_FEATURE_DESCRIPTORS | WIRE_FEATURE_DETAILS | WIRE_FEATURE_SHORTCUTS | WIRE_FEATURE_WINDOWS);
    write_text(&w, PADDOCK_BUILD);
    answer_send(c, &w, ANS_HELLO_OK, id, -1);
    return true;
}

static struct window read_window(struct reader *r) {
    struct window window = {.wanted = true};
    window.bytes = read_u32(r);
    window.hold_ms = read_u32(r);
    return window;
}

static bool on_spawn(struct connection *c, uint32_t id, struct reader *r) {
    struct spawn_order order = {0};
    order.process_id = read_text(r);
    order.argv = read_list(r);
    order.env = read_list(r);
    order.cwd = read_text(r);
    order.user = read_text(r);
    order.flags = read_u8(r);
    order.rows = read_u16(r);
    order.cols = read_u16(r);
    order.hard_timeout_ms = read_u64(r);
    order.spool_limit = read_u64(r);
    order.label = read_text(r);
    if (order.flags & SPAWN_NOTE) order.note = read_bytes(r, &order.note_length);
    if (order.flags & SPAWN_SHORTCUT) order.shortcut = read_list(r);
    if (order.flags & SPAWN_WINDOW) order.window = read_window(r);
    bool good;
    if (ready(r, c, id, &good)) do_spawn(c, id, &order);
    free(order.argv.items);
    free(order.env.items);
    free(order.shortcut.items);
    return good;
}

/* The requests about one process. */
static bool on_process(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    const char *process_id = read_text(r);
    uint64_t first = 0, second = 0;
    uint32_t length = 0;
    uint8_t stream = 0;
    const uint8_t *data = NULL;
    if (type == REQ_READ_OUTPUT) stream = read_u8(r);
    struct window window = {0};
    bool windowed = type == REQ_FOLLOW_WINDOW, all = type == REQ_FOLLOW_ALL;
    bool follow = type == REQ_FOLLOW || all || windowed, signal = type == REQ_SIGNAL || type == REQ_SIGNAL_ONE;
    if (follow || type == REQ_READ_OUTPUT) first = read_u64(r);
    if (follow) second = read_u64(r);
    if (windowed) all = read_u8(r);
    if (windowed) window = read_window(r);
    if (type == REQ_READ_OUTPUT || signal) length = read_u32(r);
    if (type == REQ_STDIN) data = read_bytes(r, &length);
    if (type == REQ_RESIZE) first = read_u16(r);
    if (type == REQ_RESIZE) second = read_u16(r);
    bool good;
    if (!ready(r, c, id, &good)) return good;
    switch (type) {
        case REQ_PROCESS_GET: do_process_get(c, id, process_id); break;
        case REQ_FOLLOW: case REQ_FOLLOW_ALL: case REQ_FOLLOW_WINDOW:
            do_follow(c, id, process_id, first, second, all, &window);
            break;
        case REQ_READ_OUTPUT: do_read_output(c, id, process_id, stream, first, length); break;
        case REQ_STDIN: do_stdin(c, id, process_id, data, length); break;
        case REQ_CLOSE_STDIN: do_close_stdin(c, id, process_id); break;
        case REQ_SIGNAL: case REQ_SIGNAL_ONE: do_signal(c, id, process_id, (int32_t)length, type == REQ_SIGNAL_ONE); break;
        case REQ_NOTE: do_note(c, id, process_id); break;
        case REQ_RESIZE: do_resize(c, id, process_id, (uint16_t)first, (uint16_t)second); break;
        default: do_wait(c, id, process_id); break;
    }
    return true;
}

/* The requests that name a user and a path. */
static bool on_path(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    const char *user = read_text(r), *owner = type == REQ_MKDIR_FOR ? read_text(r) : NULL, *path = read_text(r);
    const char *destination = "";
    uint32_t number = 0, max = 0;
    uint8_t flag = 0;
    if (type == REQ_MOVE) destination = read_text(r);
    bool mkdir = type == REQ_MKDIR || type == REQ_MKDIR_FOR;
    if (type == REQ_STAT || type == REQ_REMOVE || type == REQ_WATCH) flag = read_u8(r);
    if (type == REQ_LIST_DIR || mkdir || type == REQ_CHMOD) number = read_u32(r);
    if (type == REQ_LIST_DIR) max = read_u32(r);
    bool good;
    if (!ready(r, c, id, &good)) return good;
    switch (type) {
        case REQ_STAT: do_stat(c, id, user, path, flag); break;
        case REQ_LIST_DIR: do_list(c, id, user, path, number, max); break;
        case REQ_MKDIR: case REQ_MKDIR_FOR: do_mkdir(c, id, user, owner, path, number); break;
        case REQ_RESOLVE: do_resolve(c, id, user, path); break;
        case REQ_MOVE: do_move(c, id, user, path, destination); break;
        case REQ_REMOVE: do_remove(c, id, user, path, flag); break;
        case REQ_CHMOD: do_chmod(c, id, user, path, number); break;
        default: do_watch(c, id, user, path, flag); break;
    }
    return true;
}

static bool on_open(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    struct open_order order = {.user = read_text(r)};
    const char *owner = type == REQ_OPEN_FOR ? read_text(r) : "", *prefix = "";
    order.path = read_text(r);
    order.how = read_u8(r);
    order.mode = read_u32(r);
    if (type == REQ_OPEN_FOR) {
        prefix = read_text(r);
        order.attributes = read_list(r);
    }
    order.owner = *owner ? owner : NULL;
    order.prefix = *prefix ? prefix : NULL;
    bool good;
    if (ready(r, c, id, &good)) do_open(c, id, &order);
    free(order.attributes.items);
    return good;
}

static bool on_attributes(struct connection *c, uint32_t id, struct reader *r) {
    const char *user = read_text(r), *prefix = read_text(r);
    struct list paths = read_list(r);
    bool good;
    if (ready(r, c, id, &good)) do_attributes(c, id, user, prefix, &paths);
    free(paths.items);
    return good;
}

/* The requests that name an open file. */
static bool on_token(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    uint32_t token = read_u32(r), length = 0;
    uint64_t offset = 0;
    const uint8_t *data = NULL;
    if (type == REQ_PREAD || type == REQ_PWRITE) offset = read_u64(r);
    if (type == REQ_PREAD) length = read_u32(r);
    if (type == REQ_PWRITE) data = read_bytes(r, &length);
    if (!reader_done(r)) return false;
    switch (type) {
        case REQ_COMMIT: do_commit(c, id, token); break;
        case REQ_CLOSE: do_close(c, id, token); break;
        case REQ_PREAD: do_pread(c, id, token, offset, length); break;
        default: do_pwrite(c, id, token, offset, data, length); break;
    }
    return true;
}

static bool on_port(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    uint16_t port = read_u16(r);
    uint8_t kind = type == REQ_LISTEN_ON ? read_u8(r) : 0;
    if (!reader_done(r)) return false;
    if (kind > 3) answer_error(c, id, EINVAL, "unknown kind of socket");
    else if (!port) answer_error(c, id, EINVAL, "0 is not a port");
    else if (!c->takes_descriptors) answer_error(c, id, EOPNOTSUPP, "this connection takes no descriptors");
    else if (type == REQ_DIAL) do_dial(c, id, port);
    else do_listen(c, id, port, kind);
    return true;
}

static bool on_cancel(struct connection *c, struct reader *r) {
    uint32_t id = read_u32(r);
    if (!reader_done(r)) return false;
    struct request *request = request_find(c, id);
    if (request) request_fail(request, ECANCELED, "cancelled");
    return true;
}

static bool on_window(struct connection *c, struct reader *r) {
    uint32_t id = read_u32(r), bytes = read_u32(r);
    if (!reader_done(r)) return false;
    do_window(c, id, bytes);
    return true;
}

static bool on_plain(struct connection *c, uint8_t type, uint32_t id, struct reader *r) {
    if (!reader_done(r)) return false;
    switch (type) {
        case REQ_PING: do_ping(c, id); break;
        case REQ_PROCESSES: do_processes(c, id); break;
        case REQ_STATS: do_stats(c, id); break;
        case REQ_STOP_ALL: do_stop_all(c, id); break;
        case REQ_KILL_ALL: do_kill_all(c, id); break;
        default: do_continue_all(c, id); break;
    }
    return true;
}

bool request_handle(struct connection *c, uint8_t type, uint32_t id, uint8_t *payload, size_t length) {
    struct reader r = {payload, payload + length, false, false};
    if (type == REQ_HELLO) return on_hello(c, id, &r);
    if (!c->greeted) return false;
    if (type == REQ_CANCEL) return on_cancel(c, &r);
    if (type == REQ_WINDOW) return on_window(c, &r);
    if (request_find(c, id)) return false;
    switch (type) {
        case REQ_SPAWN: return on_spawn(c, id, &r);
        case REQ_PROCESS_GET: case REQ_FOLLOW: case REQ_READ_OUTPUT: case REQ_STDIN: case REQ_CLOSE_STDIN:
        case REQ_SIGNAL: case REQ_RESIZE: case REQ_WAIT: case REQ_SIGNAL_ONE: case REQ_NOTE: case REQ_FOLLOW_ALL:
        case REQ_FOLLOW_WINDOW:
            return on_process(c, type, id, &r);
        case REQ_OPEN: case REQ_OPEN_FOR: return on_open(c, type, id, &r);
        case REQ_STAT: case REQ_LIST_DIR: case REQ_MKDIR: case REQ_MOVE: case REQ_REMOVE: case REQ_CHMOD: case REQ_WATCH:
        case REQ_MKDIR_FOR: case REQ_RESOLVE:
            return on_path(c, type, id, &r);
        case REQ_ATTRIBUTES: return on_attributes(c, id, &r);
        case REQ_COMMIT: case REQ_CLOSE: case REQ_PREAD: case REQ_PWRITE: return on_token(c, type, id, &r);
        case REQ_DIAL: case REQ_LISTEN: case REQ_LISTEN_ON: return on_port(c, type, id, &r);
        case REQ_PING: case REQ_PROCESSES: case REQ_STATS: case REQ_STOP_ALL: case REQ_CONTINUE_ALL:
        case REQ_KILL_ALL:
            return on_plain(c, type, id, &r);
        default: answer_error(c, id, ENOSYS, "unknown request"); return true;
    }
}
