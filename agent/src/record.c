/* What is known of a process, on disk: written when it starts, and over it when it ends. Behind it stands the note that
   the server gave with it, if there is one; it is read only when somebody asks for it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dirent.h>

#include "actions.h"
#include "process.h"
#include "text.h"

enum { RECORD_MAGIC = 0x31524450, RECORD_MAX = 4096 };

static const char *record_name(uint64_t sequence, char name[NAME_SIZE]) {
    put_text(put_number(name, sequence), ".r");
    return name;
}

/* Its length depends on the id and label alone, so that the end overwrites the start in place: a full disk does not
   matter then. */
static struct writer record_of(const struct process *process) {
    struct writer w = {0};
    write_u32(&w, RECORD_MAGIC);
    write_u64(&w, process->streams[0].spool.limit);
    process_write(&w, process);
    return w;
}

void record_write(struct process *process) {
    struct writer w = record_of(process);
    if (process->note) write_bytes(&w, process->note, process->note_length);
    free(process->note);
    process->note = NULL;
    char name[NAME_SIZE];
    int fd = w.failed ? -1 : openat(state_directory, record_name(process->sequence, name),
                                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    /* A record that cannot be written is lost when the agent is; nothing else depends on it. */
    if (fd >= 0 && pwrite(fd, w.data, w.length, 0) != (ssize_t)w.length) unlinkat(state_directory, name, 0);
    if (fd >= 0) close(fd);
    writer_drop(&w);
}

void do_note(struct connection *c, uint32_t id, const char *process_id) {
    struct process *process = process_asked(c, id, process_id);
    if (!process) return;
    struct writer w = record_of(process), answer = answer_begin();
    off_t at = (off_t)w.length;
    uint8_t head[4] = {0};
    char name[NAME_SIZE];
    int fd = openat(state_directory, record_name(process->sequence, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint32_t length = fd >= 0 && pread(fd, head, sizeof head, at) == (ssize_t)sizeof head ? get_u32(head) : 0;
    if (length > MAX_NOTE) length = 0;
    write_u32(&answer, 0);
    uint8_t *space = write_space(&answer, length);
    bool whole = space && length && pread(fd, space, length, at + 4) == (ssize_t)length;
    if (whole) put_u32(space - 4, length);
    else if (space) answer.length -= length;
    if (fd >= 0) close(fd);
    writer_drop(&w);
    answer_send(c, &answer, ANS_BYTES, id, -1);
}

void record_remove(const struct process *process) {
    char name[NAME_SIZE];
    unlinkat(state_directory, record_name(process->sequence, name), 0);
}

static struct process *parse(struct reader *r, uint64_t sequence) {
    uint32_t magic = read_u32(r);
    uint64_t limit = read_u64(r);
    char *id = read_text(r);
    uint8_t status = read_u8(r);
    int32_t exit_code = (int32_t)read_u32(r), pid = (int32_t)read_u32(r);
    char *label = read_text(r);
    uint64_t started = read_u64(r), ended = read_u64(r), out = read_u64(r), err = read_u64(r);
    uint8_t terminal = read_u8(r);
    if (r->failed || r->bad_text || magic != RECORD_MAGIC || status < RUNNING || status > LOST) return NULL;
    if (!*id || strlen(id) > MAX_PROCESS_ID || process_find(id)) return NULL;
    struct process *process = process_allocate(id, label);
    if (!process) return NULL;
    process->sequence = sequence;
    process->status = status;
    process->exit_code = exit_code;
    process->pid = pid;
    process->started_us = started;
    process->ended_us = ended;
    process->terminal = terminal;
    spool_begin(&process->streams[0].spool, sequence, 'o', limit);
    spool_begin(&process->streams[1].spool, sequence, 'e', limit);
    process->streams[0].spool.size = out;
    process->streams[1].spool.size = err;
    return process;
}

static bool load_record(uint64_t sequence, const char *name) {
    uint8_t data[RECORD_MAX];
    int fd = openat(state_directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t got = read(fd, data, sizeof data);
    close(fd);
    if (got <= 0) return false;
    struct reader r = {data, data + got, false, false};
    struct process *process = parse(&r, sequence);
    if (process) process_insert(process);
    return process != NULL;
}

static bool load_segment(uint64_t sequence, const char *rest) {
    uint64_t base;
    const char *at = rest + 3;
    if (rest[0] != '.' || (rest[1] != 'o' && rest[1] != 'e') || rest[2] != '.') return false;
    if (!take_number(&at, &base) || *at) return false;
    struct process *process = processes;
    while (process && process->sequence != sequence) process = process->next;
    return process && spool_adopt(&process->streams[rest[1] == 'e'].spool, base);
}

/* One pass over the directory: over the records, or over the segments. What belongs to nothing is removed. */
static void load_all(DIR *directory, bool records) {
    rewinddir(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *rest = entry->d_name;
        uint64_t sequence;
        if (!take_number(&rest, &sequence)) continue;
        bool is_record = strcmp(rest, ".r") == 0;
        if (is_record != records) continue;
        bool known = is_record ? load_record(sequence, entry->d_name) : load_segment(sequence, rest);
        if (!known) unlinkat(state_directory, entry->d_name, 0);
    }
}

bool records_load(void) {
    int fd = openat(state_directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0) close(fd);
        return false;
    }
    load_all(directory, true);
    load_all(directory, false);
    closedir(directory);
    for (struct process *process = processes; process; process = process->next) {
        if (process->status != RUNNING) continue;
        process->status = LOST;
        process->exit_code = -1;
        process->ended_us = wall_us();
        record_write(process);
    }
    processes_trim();
    return true;
}
