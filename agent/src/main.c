/* paddock-agent: what must happen inside a sandbox, and nothing else. Under the name sudo it is sudo. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "birth.h"
#include "bridge.h"
#include "child.h"
#include "connection.h"
#include "directory.h"
#include "null.h"
#include "privileges.h"
#include "process.h"
#include "remote.h"
#include "sudo.h"
#include "text.h"
#include "trunk.h"

enum { IDLE_MS = 1000, FROZEN_MS = 500, EXIT_USAGE = 2 };

struct options {
    int listen, state, filter;
    const char *sudo, *birth, *bridge, *token, *keep;
    struct remote *remote; /* NULL: on a machine of Paddock's own */
};

int null_descriptor = -1;

_Noreturn static void die(const char *what) {
    char text[NAME_SIZE];
    put_text(put_number(put_text(text, " (errno "), (uint64_t)errno), ")\n");
    const char *parts[] = {"paddock-agent: ", what, text};
    for (int i = 0; i < 3; i++) {
        if (write(2, parts[i], strlen(parts[i])) < 0) break;
    }
    exit(1);
}

_Noreturn static void usage(void) {
    static const char text[] = "usage: paddock-agent serve --listen FD --state FD --mode range|single|plain "
                               "[--filter FD] [--sudo PATH]\n"
                               "       paddock-agent serve --birth PATH --keep PATH --mode range|plain [--sudo PATH]\n"
                               "       paddock-agent serve --bridge PATH --token PATH --keep PATH --mode range|plain "
                               "[--filter PATH] [--sudo PATH]\n"
                               "       paddock-agent remote --port N --state PATH --token PATH --mode range|own\n"
                               "       paddock-agent trunk PATH [FILTER|- [SECONDS]]\n";
    if (write(2, text, sizeof text - 1) < 0) exit(1);
    exit(EXIT_USAGE);
}

static int descriptor(const char *text) {
    uint64_t number;
    if (!take_number(&text, &number) || *text || number < 3 || number > 1 << 20 || fcntl((int)number, F_GETFD) < 0) usage();
    return (int)number;
}

/* Given by its number, or by a path. */
static int filter_named(const char *text) {
    int fd = *text == '/' ? open(text, O_RDONLY | O_CLOEXEC | O_NOCTTY) : descriptor(text);
    if (fd < 0) die("no filter");
    return fd;
}

static void parse_mode(const char *text) {
    if (strcmp(text, "range") == 0) mode = MODE_RANGE;
    else if (strcmp(text, "single") == 0) mode = MODE_SINGLE;
    else if (strcmp(text, "plain") == 0) mode = MODE_PLAIN;
    else usage();
}

static bool inherits(const struct options *options) {
    return options->listen >= 0 && options->state >= 0 && !options->birth && !options->bridge && !options->token &&
           !options->keep;
}

/* In one of the three ways, and not in two. */
static bool well_begun(const struct options *options) {
    if (options->listen >= 0 || options->state >= 0) return inherits(options);
    bool born = options->birth && !options->bridge && !options->token && options->filter < 0;
    bool bridged = options->bridge && options->token && *options->token == '/' && !options->birth;
    return options->keep && (born || bridged);
}

static struct options parse_options(int argc, char **argv) {
    struct options options = {.listen = -1, .state = -1, .filter = -1, .sudo = SUDO_SOCKET};
    bool has_mode = false;
    if (argc < 2 || argc % 2 || strcmp(argv[1], "serve") != 0) usage();
    for (int i = 2; i < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--listen") == 0) options.listen = descriptor(value);
        else if (strcmp(argv[i], "--state") == 0) options.state = descriptor(value);
        else if (strcmp(argv[i], "--filter") == 0) options.filter = filter_named(value);
        else if (strcmp(argv[i], "--sudo") == 0) options.sudo = value;
        else if (strcmp(argv[i], "--birth") == 0) options.birth = value;
        else if (strcmp(argv[i], "--bridge") == 0) options.bridge = value;
        else if (strcmp(argv[i], "--token") == 0) options.token = value;
        else if (strcmp(argv[i], "--keep") == 0) options.keep = value;
        else if (strcmp(argv[i], "--mode") == 0) {
            parse_mode(value);
            has_mode = true;
        } else {
            usage();
        }
    }
    if (!has_mode || !(mode == MODE_SINGLE ? inherits(&options) : well_begun(&options))) usage();
    return options;
}

static struct options parse_remote(int argc, char **argv) {
    static struct remote remote;
    const char *port = NULL, *state = NULL, *token = NULL, *as = NULL;
    if (argc != 10) usage();
    for (int i = 2; i < argc; i += 2) {
        if (strcmp(argv[i], "--port") == 0) port = argv[i + 1];
        else if (strcmp(argv[i], "--state") == 0) state = argv[i + 1];
        else if (strcmp(argv[i], "--token") == 0) token = argv[i + 1];
        else if (strcmp(argv[i], "--mode") == 0) as = argv[i + 1];
    }
    if (!port || !state || !token || *token != '/' || !as) usage();
    if (strcmp(as, "range") == 0) mode = MODE_RANGE;
    else if (strcmp(as, "own") == 0) mode = MODE_OWN;
    else usage();
    if (mode == MODE_RANGE && !remote_has_users()) exit(EXIT_NO_USERS);
    if (!remote_prepare(port, state, token, &remote)) die("cannot begin");
    return (struct options){.listen = -1, .state = remote.state, .filter = -1, .remote = &remote};
}

static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

/* Only what was named stays open, and none of it gets into a child. */
static void close_others(const struct options *options) {
    int kept[3] = {options->listen, options->state, options->filter};
    int next = 3;
    qsort(kept, 3, sizeof *kept, compare);
    for (int i = 0; i < 3; i++) {
        if (kept[i] < 0) continue;
        close_between(next, kept[i] - 1);
        fcntl(kept[i], F_SETFD, FD_CLOEXEC);
        next = kept[i] + 1;
    }
    close_from(next);
}

/* 0, 1 and 2 are never free, so that no descriptor of ours is mistaken for one of them. */
static bool open_null(void) {
    int fd, ends[2];
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3) continue;
    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        null_descriptor = fd;
        return true;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) return false;
    null_descriptor = ends[0]; /* without /dev, a pipe that nobody writes to is as empty */
    close(ends[1]);
    return null_descriptor >= 3;
}

/* What others inherit. Nothing else runs yet in this container, so whoever answers at the path of birth is the server. */
static void be_born(struct options *options) {
    if (options->bridge) options->listen = bridge_door(options->bridge);
    else if (!birth(options->birth, &options->listen, &options->filter)) die("nobody gave birth");
    if (options->listen < 0) die("no door");
    options->state = birth_place(options->keep);
    if (options->state < 0) die("no place for records");
}

static bool listen_for_servers(const struct options *options) {
    if (options->remote) return bridge_listen(options->remote->listen, options->remote->token);
    return options->bridge ? bridge_listen(options->listen, options->token) : connections_listen(options->listen);
}

static void become_agent(struct options *options) {
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    child_defaults();
    if (!options->remote) close_others(options);
    if (!open_null()) die("no empty input");
    if (options->keep) be_born(options);
    if (options->filter >= 0 && !filters_read(options->filter)) die("the filter cannot be read");
    if (options->filter >= 0) close(options->filter);
    if (mode == MODE_SINGLE && !user_namespace_make()) die("no second user namespace");
    /* Elsewhere the machine itself is the fence, and its root keeps what its owner gave it. */
    if (!options->remote && !privileges_drop()) die("privileges cannot be dropped");
    state_directory = options->state;
    if (!records_load()) die("the state directory cannot be read");
    if (!loop_start() || !reaper_start() || !listen_for_servers(options)) die("cannot listen");
    if (options->sudo) sudo_listen(options->sudo);
    if (!agent_filter_install()) die("the filter cannot be installed");
    /* In plain mode, which is for tests, what a sanitizer says must be heard. */
    for (int fd = 0; mode != MODE_PLAIN && fd < 3; fd++) dup2(null_descriptor, fd);
    if (options->remote) remote_ready(options->remote);
}

static void rest(void) {
    scratch_release();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* A wait much longer than asked for, or work that took so long, was a freeze: that time is nobody's. */
static int64_t frozen_time(int64_t waited, int patience, int64_t worked) {
    int64_t surplus = patience >= 0 ? waited - patience : 0;
    return (surplus > FROZEN_MS ? surplus : 0) + (worked > FROZEN_MS ? worked : 0);
}

_Noreturn static void serve(void) {
    int64_t last = now_ms();
    for (;;) {
        int patience = processes_patience();
        if (scratch_dirty() && (patience < 0 || patience > IDLE_MS)) patience = IDLE_MS;
        int64_t woken;
        bool busy = loop_turn(patience, &woken);
        int64_t now = now_ms();
        processes_check_deadlines(frozen_time(woken - last, patience, now - woken));
        last = now;
        if (!busy && scratch_dirty() && patience == IDLE_MS) rest();
        processes_tidy();
    }
}

int main(int argc, char **argv, char **env) {
    const char *name = argc ? strrchr(argv[0], '/') : NULL;
    name = name ? name + 1 : argc ? argv[0] : "";
    if (strcmp(name, "sudo") == 0) return sudo_main(argc, argv, env);
    if (argc >= 3 && argc <= 5 && strcmp(argv[1], "trunk") == 0) return trunk_main(argc, argv);
    bool elsewhere = argc > 1 && strcmp(argv[1], "remote") == 0;
    struct options options = elsewhere ? parse_remote(argc, argv) : parse_options(argc, argv);
    become_agent(&options);
    serve();
}
