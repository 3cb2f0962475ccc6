#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "directory.h"

struct working {
    struct request request;
    struct source source;
    int fd; /* also while the source is out of the loop */
    pid_t pid;
    uint8_t *frame;
    size_t have, room;
};

static pid_t workers[MAX_WORKERS];

static pid_t *slot_of(pid_t pid) {
    for (int i = 0; i < MAX_WORKERS; i++) {
        if (workers[i] == pid) return &workers[i];
    }
    return NULL;
}

void worker_reaped(pid_t pid) {
    pid_t *slot = slot_of(pid);
    if (slot) *slot = 0;
}

static void on_stop(struct request *request) {
    struct working *working = owner_of(request, struct working, request);
    if (slot_of(working->pid)) kill(working->pid, SIGKILL);
    loop_remove(&working->source);
    close(working->fd);
    free(working->frame);
}

static size_t frame_length(const struct working *working) {
    return working->have < HEADER_SIZE ? HEADER_SIZE : HEADER_SIZE + (size_t)get_u32(working->frame);
}

/* Reads up to the end of a frame. Answers false when there is no more for now; `ended` when there never will be. */
static bool read_frame(struct working *working, bool *ended) {
    while (working->have < frame_length(working)) {
        size_t length = frame_length(working);
        if (length > working->room) {
            uint8_t *grown = length > HEADER_SIZE + 2 * WORKER_FRAME ? NULL : realloc(working->frame, length);
            if (!grown) {
                *ended = true;
                return false;
            }
            working->frame = grown;
            working->room = length;
        }
        ssize_t got = read(working->fd, working->frame + working->have, length - working->have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            *ended = got == 0 || errno != EAGAIN;
            return false;
        }
        working->have += (size_t)got;
    }
    return true;
}

static void on_worker(struct source *source, uint32_t events) {
    (void)events;
    struct working *working = owner_of(source, struct working, source);
    struct connection *connection = working->request.connection;
    bool ended = false;
    while (!connection_busy(connection) && !connection->dead) {
        if (!read_frame(working, &ended)) break;
        answer_raw(connection, working->frame, working->have);
        if (working->frame[4] != ANS_ENTRIES) {
            request_close(&working->request);
            return;
        }
        working->have = 0;
    }
    if (ended) request_fail(&working->request, EIO, "the worker was stopped before it was done");
    /* Out of the loop, and not only without events: a pipe that hangs up would wake us for ever. */
    else if (connection_busy(connection)) loop_remove(source);
}

static void on_drained(struct request *request) {
    struct working *working = owner_of(request, struct working, request);
    if (working->source.fd < 0) loop_add(&working->source, working->fd, EPOLLIN, on_worker);
}

_Noreturn static void work(struct job *job, int out) {
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &standard, NULL);
    if (dup2(out, 3) < 0) _exit(1);
    job->out = 3;
    if (mode == MODE_SINGLE && dup3(user_namespace, 4, O_CLOEXEC) >= 0) user_namespace = 4;
    close_from(mode == MODE_SINGLE ? 5 : 4);
    if (!identity_become(job->identity)) worker_fail(job, EPERM, "the worker could not become this user");
    else job->run(job);
    _exit(0);
}

void worker_start(struct connection *c, uint32_t id, struct job *job) {
    static const struct request_kind kind = {on_stop, on_drained};
    pid_t *slot = slot_of(0);
    int ends[2];
    if (!slot) {
        answer_error(c, id, EAGAIN, "too many long operations at once");
        return;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        answer_error(c, id, errno, "no pipe for a worker");
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    job->id = id;
    pid_t pid = fork();
    if (pid == 0) work(job, ends[1]);
    int error = errno;
    close(ends[1]);
    struct working *working = NULL;
    if (pid < 0) answer_error(c, id, error, "the worker could not be started");
    else working = request_open(c, id, &kind, sizeof *working);
    if (pid > 0) *slot = pid;
    if (!working) {
        if (pid > 0) kill(pid, SIGKILL);
        close(ends[0]);
        return;
    }
    working->fd = ends[0];
    working->pid = pid;
    if (!loop_add(&working->source, ends[0], EPOLLIN, on_worker)) request_fail(&working->request, ENOMEM, "no memory");
}

void worker_say(struct job *job, struct writer *w, uint8_t type) {
    if (w->failed) _exit(1);
    put_u32(w->data, (uint32_t)(w->length - HEADER_SIZE));
    w->data[4] = type;
    w->data[5] = w->data[6] = w->data[7] = 0;
    put_u32(w->data + 8, job->id);
    for (size_t done = 0; done < w->length;) {
        ssize_t put = write(job->out, w->data + done, w->length - done);
        if (put < 0 && errno != EINTR) _exit(1);
        if (put > 0) done += (size_t)put;
    }
    writer_drop(w);
}

void worker_fail(struct job *job, int error, const char *message) {
    struct writer w = answer_begin();
    write_u32(&w, (uint32_t)error);
    write_text(&w, message);
    worker_say(job, &w, ANS_ERROR);
}
