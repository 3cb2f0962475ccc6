/* The processes started by SPAWN: those that run, and those that are remembered. */
#ifndef PADDOCK_PROCESS_H
#define PADDOCK_PROCESS_H

#include <sys/types.h>

#include "connection.h"
#include "spool.h"

enum { MAX_ACTIVE = 512, MAX_REMEMBERED = 256, MAX_PROCESS_ID = 128, MAX_LABEL = 1024, MAX_PENDING_INPUT = 1 << 22,
       MAX_NOTE = 1 << 16 };
#define MAX_REMEMBERED_OUTPUT ((uint64_t)64 << 20)

struct process;
struct attachment;
struct window;

struct stream {
    struct source source; /* the pipe, or the terminal's master; open while somebody may write */
    struct process *process;
    struct spool spool;
    int64_t held_since; /* in now_ms(): not read, because a follower would lose output; 0: read */
    uint8_t number;
    bool write_wanted;  /* a terminal's: to be told when it takes input */
};

struct process {
    struct process *next; /* oldest first */
    uint64_t sequence;
    char *id, *label;
    uint8_t *note; /* until it is written to the record; NULL: none */
    uint32_t note_length;
    pid_t pid;
    uint8_t status;
    int32_t exit_code;
    uint64_t started_us, ended_us;
    uint64_t hard_timeout_ms; /* 0: none */
    int64_t deadline;         /* in now_ms(), from its start on; 0: none */
    struct stream streams[2];
    struct source input; /* the pipe to its stdin; a terminal has it in its stdout stream */
    struct source start; /* tells when it has become its program, or why not */
    struct attachment *attachments; /* oldest first */
    size_t pending_input;
    bool starting, terminal, has_input, input_closing, timed_out;
    bool over; /* it has ended, and everybody was told */
    bool cut;  /* ended from outside: what its children go on writing keeps nobody waiting */
};

/* A request that waits for something of a process. */
struct attachment {
    struct request request;
    struct process *process;
    struct attachment *next;
    uint64_t offsets[2]; /* FOLLOW: what was sent */
    uint8_t *data;       /* STDIN: what is not yet in the pipe */
    size_t length, done;
    uint8_t type;        /* the request's: SPAWN, FOLLOW, WAIT or STDIN */
    bool follow;         /* SPAWN: becomes FOLLOW */
    bool all;            /* FOLLOW: until its streams are closed, by its children too */
    bool windowed;       /* FOLLOW: `credit` bytes may be sent, and it holds the process up rather than lose output */
    bool lapsed;         /* it took nothing for `hold_ms` while the process waited for it: it holds up nobody */
    uint32_t hold_ms;
    uint64_t credit;
    int64_t credited_at; /* in now_ms() */
};

extern struct process *processes;

struct process *process_find(const char *process_id);
struct process *process_by_pid(pid_t pid);
/* After answering ESRCH: NULL. */
struct process *process_asked(struct connection *c, uint32_t id, const char *process_id);
struct process *process_new(const char *process_id, const char *label, uint64_t spool_limit);
/* One read from disk, put where its sequence belongs. */
void process_insert(struct process *process);
struct process *process_allocate(const char *process_id, const char *label);
void process_forget(struct process *process);
bool process_active(const struct process *process);
unsigned processes_active(void);
void process_write(struct writer *w, const struct process *process);
/* It has started; it has ended (as wait says); old ones go. */
void process_started(struct process *process);
void process_ended(struct process *process, int wait_status);
void processes_trim(void); /* at the end of this turn of the loop: callers still use theirs */
void processes_tidy(void);
/* Milliseconds until the next deadline (-1: none), and: kill what is past it. */
int processes_patience(void);
void processes_check_deadlines(int64_t surplus_ms);
/* Between STOP_ALL and CONTINUE_ALL no deadline comes nearer. */
void processes_hold(bool hold);

/* attach.c */
struct attachment *attach(struct connection *c, uint32_t id, struct process *process, uint8_t type);
void attachments_started(struct process *process);
void attachments_failed(struct process *process, int error, const char *message);
/* New output (the last bytes of `stream`, just spooled), and the end. */
void attachments_output(struct stream *stream, const uint8_t *data, size_t length);
void attachments_ended(struct process *process);
void attachment_window(struct attachment *attachment, const struct window *window);
/* How many bytes of this stream can be read before a follower who holds it up loses some. */
uint64_t attachments_room(const struct stream *stream);
/* Milliseconds until the next follower has held a process up for too long (-1: none), and: those let go. */
int64_t holds_patience(const struct process *process, int64_t now);
void holds_check(struct process *process, int64_t now);

/* output.c */
void stream_open(struct stream *stream, int fd);
void stream_drain(struct stream *stream);
void stream_write_events(struct stream *stream, bool wanted);
/* Those that were held up and need not be any more are read again. */
void streams_continue(struct process *process);

/* input.c */
void input_continue(struct process *process);
void input_drop(struct process *process);

/* record.c */
void record_write(struct process *process);
void record_remove(const struct process *process);
bool records_load(void);

/* spawn.c: has it become its program? False: it failed, and is forgotten. Only when it is known to have ended. */
bool spawn_settle(struct process *process);

/* reap.c */
bool reaper_start(void);

/* Whether this kernel could not hand out the other end of a terminal; known once there was one. */
extern bool terminals_by_name;

#endif
