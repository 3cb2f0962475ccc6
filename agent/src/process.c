#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "actions.h"

enum { LONGEST_LOOK = 1000 };

struct process *processes;
static uint64_t last_sequence;
static bool trim_wanted;

struct process *process_find(const char *process_id) {
    struct process *process = processes;
    while (process && strcmp(process->id, process_id) != 0) process = process->next;
    return process;
}

struct process *process_by_pid(pid_t pid) {
    struct process *process = processes;
    while (process && (process->pid != pid || process->status != RUNNING)) process = process->next;
    return process;
}

struct process *process_asked(struct connection *c, uint32_t id, const char *process_id) {
    struct process *process = process_find(process_id);
    if (process) return process;
    answer_error(c, id, ESRCH, "no such process");
    return NULL;
}

/* Cut where a character begins, so that text stays text. */
static size_t label_length(const char *label) {
    size_t length = strlen(label);
    if (length <= MAX_LABEL) return length;
    length = MAX_LABEL;
    while (length > MAX_LABEL - 4 && ((unsigned char)label[length] & 0xC0) == 0x80) length--;
    return length;
}

struct process *process_allocate(const char *process_id, const char *label) {
    struct process *process = calloc(1, sizeof *process);
    if (!process) return NULL;
    process->id = strdup(process_id);
    process->label = strndup(label, label_length(label));
    if (!process->id || !process->label) {
        free(process->id);
        free(process->label);
        free(process);
        return NULL;
    }
    process->status = RUNNING;
    process->exit_code = -1;
    process->input.fd = process->start.fd = -1;
    for (int i = 0; i < 2; i++) {
        process->streams[i].process = process;
        process->streams[i].number = (uint8_t)(STREAM_STDOUT + i);
        process->streams[i].source.fd = process->streams[i].spool.fd = -1;
    }
    return process;
}

void process_insert(struct process *process) {
    struct process **link = &processes;
    while (*link && (*link)->sequence < process->sequence) link = &(*link)->next;
    process->next = *link;
    *link = process;
    if (last_sequence < process->sequence) last_sequence = process->sequence;
}

struct process *process_new(const char *process_id, const char *label, uint64_t spool_limit) {
    struct process *process = process_allocate(process_id, label);
    if (!process) return NULL;
    process->sequence = last_sequence + 1;
    process->starting = true;
    process->started_us = wall_us();
    spool_begin(&process->streams[0].spool, process->sequence, 'o', spool_limit);
    spool_begin(&process->streams[1].spool, process->sequence, 'e', spool_limit);
    process_insert(process);
    return process;
}

void process_forget(struct process *process) {
    struct process **link = &processes;
    while (*link != process) link = &(*link)->next;
    *link = process->next;
    loop_close(&process->start);
    loop_close(&process->input);
    for (int i = 0; i < 2; i++) {
        loop_close(&process->streams[i].source);
        spool_remove(&process->streams[i].spool);
    }
    record_remove(process);
    free(process->id);
    free(process->label);
    free(process->note);
    loop_free(process);
}

bool process_active(const struct process *process) {
    return process->status == RUNNING || process->streams[0].source.fd >= 0 || process->streams[1].source.fd >= 0;
}

unsigned processes_active(void) {
    unsigned count = 0;
    for (struct process *process = processes; process; process = process->next) count += process_active(process);
    return count;
}

void process_write(struct writer *w, const struct process *process) {
    write_text(w, process->id);
    write_u8(w, process->status);
    write_u32(w, (uint32_t)process->exit_code);
    write_u32(w, (uint32_t)process->pid);
    write_text(w, process->label);
    write_u64(w, process->started_us);
    write_u64(w, process->ended_us);
    write_u64(w, process->streams[0].spool.size);
    write_u64(w, process->streams[1].spool.size);
    write_u8(w, process->terminal);
}

void process_started(struct process *process) {
    process->starting = false;
    /* Longer than 10^12 ms is as good as never. */
    if (process->hard_timeout_ms && process->hard_timeout_ms < (uint64_t)1000000000000) {
        process->deadline = now_ms() + (int64_t)process->hard_timeout_ms;
    }
    record_write(process);
    attachments_started(process);
}

void process_ended(struct process *process, int wait_status) {
    process->ended_us = wall_us();
    process->deadline = 0;
    if (WIFSIGNALED(wait_status)) {
        process->exit_code = 128 + WTERMSIG(wait_status);
        process->status = process->timed_out && WTERMSIG(wait_status) == SIGKILL ? TIMED_OUT : KILLED;
    } else {
        process->exit_code = WEXITSTATUS(wait_status);
        process->status = COMPLETED;
    }
    for (int i = 0; i < 2; i++) stream_drain(&process->streams[i]);
    input_drop(process);
    record_write(process);
    process->over = true;
    attachments_ended(process);
    processes_trim();
}

/* The one that ended first, among those that nobody needs any more; and what is kept in all. */
static struct process *oldest_ended(unsigned *count, uint64_t *bytes) {
    struct process *oldest = NULL;
    *count = 0;
    *bytes = 0;
    for (struct process *process = processes; process; process = process->next) {
        if (process_active(process)) continue;
        ++*count;
        *bytes += spool_held(&process->streams[0].spool) + spool_held(&process->streams[1].spool);
        if (process->attachments) continue;
        if (!oldest || process->ended_us < oldest->ended_us) oldest = process;
    }
    return oldest;
}

void processes_trim(void) { trim_wanted = true; }

void processes_tidy(void) {
    unsigned count;
    uint64_t bytes;
    struct process *oldest;
    if (!trim_wanted) return;
    trim_wanted = false;
    while ((oldest = oldest_ended(&count, &bytes)) && (count > MAX_REMEMBERED || bytes > MAX_REMEMBERED_OUTPUT)) {
        if (count == 1) break;
        process_forget(oldest);
    }
}

static int64_t held_since; /* 0: they are not */

/* Time that does not count. */
static void forgive(struct process *process, int64_t ms) {
    if (process->deadline) process->deadline += ms;
    for (int i = 0; i < 2; i++) {
        if (process->streams[i].held_since) process->streams[i].held_since += ms;
    }
}

static int64_t shorter(int64_t one, int64_t other) { return one < 0 || (other >= 0 && other < one) ? other : one; }

void processes_hold(bool hold) {
    int64_t now = now_ms();
    if (hold == (held_since != 0)) return;
    for (struct process *process = processes; !hold && process; process = process->next) forgive(process, now - held_since);
    held_since = hold ? now : 0;
}

int processes_patience(void) {
    int64_t now = now_ms(), patience = -1;
    if (held_since) return -1;
    for (struct process *process = processes; process; process = process->next) {
        patience = shorter(patience, holds_patience(process, now));
        if (process->deadline) patience = shorter(patience, process->deadline > now ? process->deadline - now : 0);
    }
    /* Short looks, so that a freeze is noticed as one: see processes_check_deadlines. */
    return (int)(patience > LONGEST_LOOK ? LONGEST_LOOK : patience);
}

void processes_check_deadlines(int64_t surplus_ms) {
    int64_t now = now_ms();
    if (held_since) return;
    for (struct process *process = processes; process; process = process->next) {
        forgive(process, surplus_ms);
        holds_check(process, now);
        if (!process->deadline || process->deadline > now) continue;
        process->deadline = 0;
        process->timed_out = process->cut = true;
        kill(-process->pid, SIGKILL);
    }
}

void do_processes(struct connection *c, uint32_t id) {
    struct writer w = answer_begin();
    uint32_t count = 0;
    write_u32(&w, 0);
    for (struct process *process = processes; process; process = process->next) {
        if (process->starting) continue;
        process_write(&w, process);
        count++;
    }
    if (!w.failed) put_u32(w.data + HEADER_SIZE, count);
    answer_send(c, &w, ANS_PROCESS_LIST, id, -1);
}

void do_process_get(struct connection *c, uint32_t id, const char *process_id) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    struct writer w = answer_begin();
    process_write(&w, process);
    answer_send(c, &w, ANS_PROCESS, id, -1);
}

void do_signal(struct connection *c, uint32_t id, const char *process_id, int32_t number, bool one) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    bool ends = one && (number == SIGKILL || number == SIGTERM);
    if (process->over && ends && process_active(process)) {
        /* It has left children behind that hold its output: whoever waits for them need not any more. */
        process->cut = true;
        attachments_ended(process);
        answer_ok(c, id);
    } else if (process->status != RUNNING) {
        answer_error(c, id, EPIPE, "the process has ended");
    } else if (number < 1 || number > 64) {
        answer_error(c, id, EINVAL, "this is not the number of a signal");
    } else if (kill(one ? process->pid : -process->pid, number) < 0) {
        answer_error(c, id, errno == ESRCH ? EPIPE : errno, "the signal was refused");
    } else {
        process->cut = process->cut || ends;
        answer_ok(c, id);
    }
}
