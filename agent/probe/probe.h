/* The probe: tries, from inside a sandbox, what a sandbox must refuse.
 *
 * Every attempt is made so that it changes nothing where it is not refused: a file is opened for writing but not
 * written, a clock is set to the time that it shows, a module that does not exist is removed. It tells what happened by
 * its exit status and one line of text. */
#ifndef PADDOCK_PROBE_H
#define PADDOCK_PROBE_H

#include <stdbool.h>
#include <stddef.h>

enum verdict {
    REFUSED = 0,
    NOT_REFUSED = 1,
    NOT_TRIED = 2,
};

/* What an attempt is given: its own entry, and the words of the command line after its name. */
struct call {
    const struct attempt *attempt;
    int count;
    char **words;
};

struct attempt {
    const char *name;
    enum verdict (*run)(const struct call *call);
    const char *text; /* what the same function is to try under this name */
    int words;        /* how many it needs */
    unsigned long number;
};

/* One table to a file; each ends in an entry without a name. */
extern const struct attempt file_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt agent_attempts[];
extern const struct attempt mount_attempts[];
extern const struct attempt namespace_attempts[];
extern const struct attempt kernel_attempts[];
extern const struct attempt machine_attempts[];
extern const struct attempt node_attempts[];
extern const struct attempt network_attempts[];
extern const struct attempt reach_attempts[];
extern const struct attempt privilege_attempts[];
extern const struct attempt terminal_attempts[];
extern const struct attempt memory_attempts[];
extern const struct attempt flood_attempts[];
/* Not attempts of their own; `run` knows them, `list` does not. */
extern const struct attempt helpers[];
enum verdict tell_privileges(const struct call *call);
enum verdict allowance_hold(const struct call *call);
enum verdict allowance_use(const struct call *call);

/* report.c */
enum verdict refused(const char *format, ...) __attribute__((format(printf, 1, 2)));
enum verdict not_refused(const char *format, ...) __attribute__((format(printf, 1, 2)));
enum verdict not_tried(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Of a call that checks permission before anything else: every error but a denial means that it was permitted. */
enum verdict judge(long result, const char *what);
/* Of a call that has done harm only if it succeeded. */
enum verdict judge_success(long result, const char *what);

/* words.c */
/* A secret comes backwards on the command line, so that whoever searches for it does not find the search itself. */
char *turned(const char *word);
long number(const char *word);
bool contains(const char *data, size_t length, const char *secret);
/* Up to `size` bytes of a file; -1 and errno where it cannot be opened or read. */
long read_some(const char *path, char *buffer, size_t size);
bool file_contains(const char *path, const char *secret);
/* The words of a text that are separated by spaces, one after the other; false at the end. */
bool next_word(const char **text, char *word, size_t size);
double seconds_now(void);

#endif
