/* STATS, STOP_ALL, CONTINUE_ALL and KILL_ALL: everybody in the sandbox, from /proc. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "actions.h"
#include "directory.h"
#include "process.h"
#include "text.h"

enum { STAT_SIZE = 1024, SWEEPS = 50, MAX_STOPPED = 1 << 16 };

/* What /proc/PID/stat says of one process. */
struct sample {
    pid_t pid;
    char state;
    uint64_t parent, session, ticks, started;
};

struct stopped {
    pid_t pid;
    uint64_t started;
};

static struct stopped *stopped;
static size_t stopped_count, stopped_room;

static bool parse_sample(const char *text, struct sample *sample) {
    /* The name is in parentheses, and may hold anything: what counts comes behind the last one. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2]) return false;
    sample->state = at[2];
    at += 3;
    for (int field = 4; field <= 22; field++) {
        uint64_t value = 0;
        at += strspn(at, " ");
        if (*at == '-') at++;
        if (!take_number(&at, &value)) return false;
        if (field == 4) sample->parent = value;
        if (field == 6) sample->session = value;
        if (field >= 14 && field <= 17) sample->ticks += value;
        if (field == 22) sample->started = value;
    }
    return true;
}

static bool take_sample(int proc, const char *name, struct sample *sample) {
    char path[NAME_SIZE], text[STAT_SIZE];
    const char *end = name;
    uint64_t pid;
    if (!take_number(&end, &pid) || *end || strlen(name) > 10) return false;
    put_text(put_text(path, name), "/stat");
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return false;
    text[got] = 0;
    *sample = (struct sample){.pid = (pid_t)pid};
    return parse_sample(text, sample);
}

/* As PID 1 everybody is ours, except who came in from outside (a trunk): he has no parent here. Otherwise the sessions
   that we started. */
static bool is_ours(const struct sample *sample) {
    if (sample->pid == getpid() || sample->state == 'Z' || sample->state == 'X') return false;
    if (getpid() == 1) return sample->parent != 0;
    for (struct process *process = processes; process; process = process->next) {
        if (process_active(process) && (uint64_t)process->pid == sample->session) return true;
    }
    return false;
}

/* What a process has for itself. Pages of files are shared with others, the host's among them. */
static uint64_t private_pages(const struct sample *sample) {
    char path[NAME_SIZE], text[STAT_SIZE];
    const char *at = text;
    uint64_t size, resident, shared;
    put_text(put_number(put_text(path, "/proc/"), (uint64_t)sample->pid), "/statm");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return 0;
    text[got] = 0;
    bool good = take_number(&at, &size);
    at += strspn(at, " ");
    good = good && take_number(&at, &resident);
    at += strspn(at, " ");
    good = good && take_number(&at, &shared);
    return good && resident > shared ? resident - shared : 0;
}

static int for_each(void (*call)(const struct sample *sample, void *data), void *data) {
    struct directory directory;
    struct sample sample;
    const char *name;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0) return errno;
    directory_begin(&directory, proc);
    while ((name = directory_next(&directory))) {
        if (take_sample(proc, name, &sample) && is_ours(&sample)) call(&sample, data);
    }
    close(proc);
    return directory.error;
}

struct usage {
    uint64_t ticks, pages;
    uint32_t count;
};

static void add_usage(const struct sample *sample, void *data) {
    struct usage *usage = data;
    usage->ticks += sample->ticks;
    usage->pages += private_pages(sample);
    usage->count++;
}

static uint64_t microseconds(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

void do_stats(struct connection *c, uint32_t id) {
    struct usage usage = {0};
    struct rusage ended;
    struct statvfs disk = {0};
    int error = for_each(add_usage, &usage);
    if (error) {
        answer_error(c, id, error, "/proc cannot be read");
        return;
    }
    getrusage(RUSAGE_CHILDREN, &ended);
    if (statvfs("/workspace", &disk) < 0) statvfs("/", &disk);
    uint64_t tick = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct writer w = answer_begin();
    write_u64(&w, usage.ticks * tick + microseconds(&ended.ru_utime) + microseconds(&ended.ru_stime));
    write_u64(&w, usage.pages * (uint64_t)sysconf(_SC_PAGESIZE));
    write_u64(&w, (uint64_t)(disk.f_blocks - disk.f_bfree) * disk.f_frsize);
    write_u64(&w, (uint64_t)disk.f_blocks * disk.f_frsize);
    write_u32(&w, usage.count);
    answer_send(c, &w, ANS_STATS_OK, id, -1);
}

static bool remember(const struct sample *sample) {
    if (stopped_count == stopped_room) {
        size_t room = stopped_room ? stopped_room * 2 : 64;
        struct stopped *grown = room > MAX_STOPPED ? NULL : realloc(stopped, room * sizeof *grown);
        if (!grown) return false;
        stopped = grown;
        stopped_room = room;
    }
    stopped[stopped_count++] = (struct stopped){sample->pid, sample->started};
    return true;
}

static bool is_remembered(const struct sample *sample) {
    for (size_t i = 0; i < stopped_count; i++) {
        if (stopped[i].pid == sample->pid && stopped[i].started == sample->started) return true;
    }
    return false;
}

static void stop_one(const struct sample *sample, void *data) {
    bool *again = data;
    if (sample->state == 'T' || sample->state == 't') return;
    if (!is_remembered(sample) && !remember(sample)) return;
    if (kill(sample->pid, SIGSTOP) == 0) *again = true;
}

static void answer_count(struct connection *c, uint32_t id, size_t count) {
    struct writer w = answer_begin();
    write_u32(&w, (uint32_t)count);
    answer_send(c, &w, ANS_COUNT, id, -1);
}

void do_stop_all(struct connection *c, uint32_t id) {
    bool again = true;
    int error = 0;
    /* Until a whole look finds nobody running: who was looked at may have forked behind our back. */
    for (int i = 0; again && !error && i < SWEEPS; i++) {
        again = false;
        error = for_each(stop_one, &again);
    }
    processes_hold(stopped_count > 0);
    if (error) answer_error(c, id, error, "/proc cannot be read");
    else answer_count(c, id, stopped_count);
}

static void continue_one(const struct sample *sample, void *data) {
    size_t *count = data;
    if (is_remembered(sample) && kill(sample->pid, SIGCONT) == 0) ++*count;
}

void do_continue_all(struct connection *c, uint32_t id) {
    size_t count = 0;
    int error = for_each(continue_one, &count);
    if (error) {
        answer_error(c, id, error, "/proc cannot be read");
        return;
    }
    free(stopped);
    stopped = NULL;
    stopped_count = stopped_room = 0;
    processes_hold(false);
    answer_count(c, id, count);
}

static void count_one(const struct sample *sample, void *data) {
    size_t *count = data;
    (void)sample;
    ++*count;
}

/* One system call for all: nobody can fork between being seen and being killed. */
void do_kill_all(struct connection *c, uint32_t id) {
    size_t count = 0;
    if (getpid() != 1) {
        answer_error(c, id, ENOSYS, "this agent is not the first process");
        return;
    }
    int error = for_each(count_one, &count);
    if (!error && kill(-1, SIGKILL) < 0 && errno != ESRCH) error = errno;
    if (error) answer_error(c, id, error, "not everybody could be killed");
    else answer_count(c, id, count);
}
