/* Feeds mutated frames to the agent's own connection code, with actions that read everything they are given and do
 * nothing. Deterministic: `fuzz ITERATIONS SEED`. To be run under sanitizers; any finding ends it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actions.h"
#include "sudo_message.h"

enum { MAX_INPUT = 4096 };

static uint64_t state;
static volatile size_t seen;

static uint32_t chance(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

/* Every byte is looked at, so that a wrong length is a finding. */
static void look(const char *text) { seen += strlen(text); }

static void look_bytes(const uint8_t *data, size_t length) {
    for (size_t i = 0; i < length; i++) seen += data[i];
}

static void look_list(const struct list *list) {
    uint32_t count = 0;
    for (char **item = list->items; *item; item++, count++) look(*item);
    if (count != list->count) abort();
}

struct held {
    struct request request;
    uint8_t *memory;
};

static void on_stop(struct request *request) { free(((struct held *)request)->memory); }
static void on_drained(struct request *request) { seen += ((struct held *)request)->memory[0]; }

/* Some requests stay open, as WAIT and FOLLOW do; the others are answered. */
static void answer(struct connection *c, uint32_t id) {
    static const struct request_kind kind = {on_stop, on_drained};
    if (chance(3)) {
        answer_ok(c, id);
        return;
    }
    struct held *held = request_open(c, id, &kind, sizeof *held);
    if (!held) return;
    held->memory = calloc(1, 8);
    if (!held->memory) abort();
    if (!chance(4)) request_fail(&held->request, EIO, "of the fuzzer");
}

void do_spawn(struct connection *c, uint32_t id, struct spawn_order *order) {
    look(order->process_id);
    look_list(&order->argv);
    look_list(&order->env);
    look(order->cwd);
    look(order->user);
    look(order->label);
    look_bytes(order->note, order->note_length);
    answer(c, id);
}
void do_processes(struct connection *c, uint32_t id) { answer(c, id); }
void do_stats(struct connection *c, uint32_t id) { answer(c, id); }
void do_ping(struct connection *c, uint32_t id) { answer(c, id); }
void do_stop_all(struct connection *c, uint32_t id) { answer(c, id); }
void do_continue_all(struct connection *c, uint32_t id) { answer(c, id); }
void do_kill_all(struct connection *c, uint32_t id) { answer(c, id); }
void do_process_get(struct connection *c, uint32_t id, const char *process_id) {
    look(process_id);
    answer(c, id);
}
void do_wait(struct connection *c, uint32_t id, const char *process_id) { do_process_get(c, id, process_id); }
void do_note(struct connection *c, uint32_t id, const char *process_id) { do_process_get(c, id, process_id); }
void do_close_stdin(struct connection *c, uint32_t id, const char *process_id) { do_process_get(c, id, process_id); }
void do_follow(struct connection *c, uint32_t id, const char *process_id, uint64_t out, uint64_t err, bool all,
               const struct window *window) {
    seen += (out ^ err) + all + window->wanted + window->bytes + window->hold_ms;
    do_process_get(c, id, process_id);
}
void do_window(struct connection *c, uint32_t follow_id, uint32_t bytes) {
    seen += bytes;
    if (request_find(c, follow_id)) seen++;
}
void do_read_output(struct connection *c, uint32_t id, const char *process_id, uint8_t stream, uint64_t offset, uint32_t limit) {
    seen += stream + offset + limit;
    struct writer w = answer_begin();
    write_u64(&w, offset);
    write_bytes(&w, process_id, strlen(process_id));
    answer_send(c, &w, ANS_OUTPUT, id, chance(8) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC));
}
void do_stdin(struct connection *c, uint32_t id, const char *process_id, const uint8_t *data, uint32_t length) {
    look_bytes(data, length);
    do_process_get(c, id, process_id);
}
void do_signal(struct connection *c, uint32_t id, const char *process_id, int32_t number, bool one) {
    seen += (size_t)number + one;
    do_process_get(c, id, process_id);
}
void do_resize(struct connection *c, uint32_t id, const char *process_id, uint16_t rows, uint16_t cols) {
    seen += (size_t)(rows + cols);
    do_process_get(c, id, process_id);
}

static void on_path(struct connection *c, uint32_t id, const char *user, const char *path, size_t number) {
    seen += number;
    look(user);
    look(path);
    answer(c, id);
}
void do_stat(struct connection *c, uint32_t id, const char *user, const char *path, bool follow) { on_path(c, id, user, path, follow); }
void do_list(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t depth, uint32_t max) {
    on_path(c, id, user, path, depth + max);
}
void do_open(struct connection *c, uint32_t id, const struct open_order *order) {
    if (order->owner) look(order->owner);
    if (order->prefix) look(order->prefix);
    if (order->attributes.items) look_list(&order->attributes);
    on_path(c, id, order->user, order->path, order->how + order->mode);
}
void do_mkdir(struct connection *c, uint32_t id, const char *user, const char *owner, const char *path, uint32_t mode) {
    if (owner) look(owner);
    on_path(c, id, user, path, mode);
}
void do_resolve(struct connection *c, uint32_t id, const char *user, const char *path) { on_path(c, id, user, path, 0); }
void do_attributes(struct connection *c, uint32_t id, const char *user, const char *prefix, const struct list *paths) {
    look_list(paths);
    on_path(c, id, user, prefix, 0);
}
void do_chmod(struct connection *c, uint32_t id, const char *user, const char *path, uint32_t mode) { on_path(c, id, user, path, mode); }
void do_remove(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive) { on_path(c, id, user, path, recursive); }
void do_watch(struct connection *c, uint32_t id, const char *user, const char *path, bool recursive) { on_path(c, id, user, path, recursive); }
void do_move(struct connection *c, uint32_t id, const char *user, const char *source, const char *destination) {
    look(destination);
    on_path(c, id, user, source, 0);
}
void do_commit(struct connection *c, uint32_t id, uint32_t token) { (void)token, answer(c, id); }
void do_close(struct connection *c, uint32_t id, uint32_t token) { (void)token, answer(c, id); }
void do_pread(struct connection *c, uint32_t id, uint32_t token, uint64_t offset, uint32_t limit) {
    seen += token + offset + limit;
    answer(c, id);
}
void do_pwrite(struct connection *c, uint32_t id, uint32_t token, uint64_t offset, const uint8_t *data, uint32_t length) {
    look_bytes(data, length);
    seen += token + offset;
    answer(c, id);
}
void do_dial(struct connection *c, uint32_t id, uint16_t port) { (void)port, answer(c, id); }
void do_listen(struct connection *c, uint32_t id, uint16_t port, uint8_t kind) { (void)port, (void)kind, answer(c, id); }
void tokens_drop(struct connection *c) { (void)c; }

static void write_frame(struct writer *w, uint8_t type, const struct writer *payload) {
    write_u32(w, (uint32_t)payload->length);
    write_u8(w, type);
    write_raw(w, "\0\0\0", 3);
    write_u32(w, 1 + chance(50));
    write_raw(w, payload->data, payload->length);
}

static void write_words(struct writer *w, uint32_t count) {
    write_u32(w, count);
    for (uint32_t i = 0; i < count; i++) write_text(w, i % 2 ? "K=value" : "/bin/word");
}

/* A frame that is right, or nearly: fields of every kind in the order of some request. */
static void seed_frame(struct writer *w) {
    static const uint8_t types[] = {
        REQ_HELLO, REQ_PING, REQ_SPAWN, REQ_SPAWN, REQ_PROCESSES, REQ_PROCESS_GET, REQ_FOLLOW, REQ_READ_OUTPUT, REQ_STDIN,
        REQ_CLOSE_STDIN, REQ_SIGNAL, REQ_RESIZE, REQ_WAIT, REQ_CANCEL, REQ_STAT, REQ_LIST_DIR, REQ_OPEN, REQ_COMMIT, REQ_CLOSE,
        REQ_MKDIR, REQ_MOVE, REQ_REMOVE, REQ_CHMOD, REQ_WATCH, REQ_PREAD, REQ_PWRITE, REQ_DIAL, REQ_LISTEN, REQ_LISTEN_ON, REQ_STATS, 0x7f,
        REQ_SPAWN, REQ_SIGNAL_ONE, REQ_NOTE, REQ_FOLLOW_ALL, REQ_OPEN_FOR, REQ_MKDIR_FOR, REQ_RESOLVE, REQ_ATTRIBUTES,
        REQ_SPAWN, REQ_FOLLOW_WINDOW, REQ_WINDOW, REQ_STOP_ALL, REQ_CONTINUE_ALL, REQ_KILL_ALL,
    };
    static const char *const forms[] = {
        "44", "", "tlltt12288t", "tlltt12288t", "", "t", "t88", "t184", "tb", "t", "t4", "t22", "t", "4", "tt1", "tt44", "tt14",
        "4", "4", "tt4", "ttt", "tt1", "tt4", "tt1", "484", "48b", "2", "2", "21", "", "tb4",
        "tlltt12288tb", "t4", "t", "t88", "ttt14tl", "ttt4", "tt", "ttl",
        "tlltt12288t44", "t88144", "44", "", "", "",
    };
    _Static_assert(sizeof types == sizeof forms / sizeof *forms, "each type has its form");
    uint32_t pick = chance(sizeof types);
    struct writer payload = {0};
    for (const char *form = forms[pick]; *form; form++) {
        if (*form == 't') write_text(&payload, chance(2) ? "/workspace/a name" : "user");
        else if (*form == 'b') write_bytes(&payload, "\0\1\2\3\4\5\6\7", chance(9));
        else if (*form == 'l') write_words(&payload, chance(4));
        else for (int i = '0'; i < *form; i++) write_u8(&payload, (uint8_t)chance(256));
    }
    write_frame(w, types[pick], &payload);
    writer_drop(&payload);
}

static void mutate(uint8_t *data, size_t length, size_t *used) {
    static const uint32_t numbers[] = {0, 1, 3, 4, 0x7f, 0xff, 0xffff, 0x10000, 0x110000, 0x110001, 0x7fffffff, 0x80000000, 0xffffffff};
    for (uint32_t i = chance(4); i && length; i--) {
        uint32_t at = chance((uint32_t)length);
        switch (chance(5)) {
            case 0: data[at] ^= (uint8_t)(1 << chance(8)); break;
            case 1: data[at] = (uint8_t)chance(256); break;
            case 2: if (length - at >= 4) put_u32(data + at, numbers[chance(sizeof numbers / sizeof *numbers)]); break;
            case 3: *used = at; return;
            default: memmove(data + at, data, length - at); break;
        }
    }
}

static int greeted_peer(void) {
    int ends[2];
    uint8_t hello[HEADER_SIZE + 8] = {8, 0, 0, 0, REQ_HELLO, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) abort();
    connection_open(ends[0]);
    if (write(ends[1], hello, sizeof hello) != sizeof hello) abort();
    return ends[1];
}

static bool drain(int peer) {
    uint8_t data[4096];
    ssize_t got;
    while ((got = read(peer, data, sizeof data)) > 0) continue;
    return got < 0 && errno == EAGAIN;
}

static void fuzz_sudo(uint8_t *data, size_t length) {
    struct sudo_order order;
    if (length < HEADER_SIZE) return;
    seen += sudo_frame_length(data, SUDO_RUN) + sudo_frame_length(data, SUDO_SIGNAL);
    if (!sudo_order_read(data + HEADER_SIZE, length - HEADER_SIZE, &order)) return;
    look_list(&order.argv);
    look_list(&order.env);
    look(order.user);
    sudo_order_drop(&order);
}

static void write_input(struct writer *w) {
    for (uint32_t i = 1 + chance(4); i; i--) seed_frame(w);
    if (!chance(3)) {
        struct writer payload = {0};
        write_words(&payload, chance(5));
        write_words(&payload, chance(5));
        write_text(&payload, "root");
        write_frame(w, SUDO_RUN, &payload);
        writer_drop(&payload);
    }
}

int main(int argc, char **argv) {
    long iterations = argc > 1 ? atol(argv[1]) : 100000;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (!state || !loop_start()) return 2;
    int peer = greeted_peer();
    long broken = 0;
    int64_t woken;
    for (long i = 0; i < iterations; i++) {
        struct writer w = {0};
        write_input(&w);
        size_t used = w.length;
        mutate(w.data, w.length, &used);
        /* A copy of exactly this size: reading past it is a finding. */
        uint8_t *exact = malloc(used ? used : 1);
        if (!exact) return 2;
        memcpy(exact, w.data, used);
        if (write(peer, exact, used) < 0 && errno != EPIPE) return 2;
        fuzz_sudo(exact, used);
        free(exact);
        writer_drop(&w);
        while (loop_turn(0, &woken)) continue;
        /* Now and then somebody leaves in the middle of a frame. */
        if (drain(peer) && chance(50)) continue;
        close(peer);
        while (loop_turn(0, &woken)) continue;
        peer = greeted_peer();
        broken++;
    }
    close(peer);
    while (loop_turn(0, &woken)) continue;
    printf("%ld inputs, %ld connections\n", iterations, broken);
    return 0;
}
