#include "accounts.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

enum { LINE_SIZE = 2048, FILE_LIMIT = 1 << 20, FIELDS = 7 };

struct lines {
    int fd;
    size_t have, total;
    bool ended;
    char buffer[LINE_SIZE];
};

static bool lines_open(struct lines *lines, const char *path) {
    struct stat found;
    lines->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    lines->have = lines->total = 0;
    lines->ended = false;
    if (lines->fd < 0) return false;
    if (fstat(lines->fd, &found) == 0 && S_ISREG(found.st_mode)) return true;
    close(lines->fd);
    return false;
}

/* The next line without its end, copied to `line`. One that is too long comes in pieces, which match nothing. */
static bool lines_next(struct lines *lines, char line[LINE_SIZE]) {
    char *end;
    while (!(end = memchr(lines->buffer, '\n', lines->have)) && !lines->ended && lines->have < LINE_SIZE - 1) {
        ssize_t got = read(lines->fd, lines->buffer + lines->have, LINE_SIZE - 1 - lines->have);
        lines->ended = got <= 0 || (lines->total += (size_t)got) > FILE_LIMIT;
        if (got > 0) lines->have += (size_t)got;
    }
    size_t length = end ? (size_t)(end - lines->buffer) : lines->have;
    size_t used = end ? length + 1 : length;
    if (!used) return false;
    memcpy(line, lines->buffer, length);
    line[length] = 0;
    lines->have -= used;
    memmove(lines->buffer, lines->buffer + used, lines->have);
    return true;
}

static unsigned split(char *line, char *fields[FIELDS], unsigned wanted) {
    unsigned count = 0;
    while (line && count < wanted) {
        fields[count++] = line;
        char *colon = strchr(line, ':');
        if (colon) *colon++ = 0;
        line = colon;
    }
    return count;
}

static bool number_of(const char *text, uint32_t *number) {
    uint64_t value;
    if (!take_number(&text, &value) || *text || value >= UINT32_MAX) return false;
    *number = (uint32_t)value;
    return true;
}

static bool parse_account(char *line, struct account *account) {
    char *fields[FIELDS];
    if (split(line, fields, FIELDS) < FIELDS) return false;
    if (!number_of(fields[2], &account->uid) || !number_of(fields[3], &account->gid)) return false;
    if (strlen(fields[0]) >= ACCOUNT_NAME || strlen(fields[5]) >= ACCOUNT_PATH || strlen(fields[6]) >= ACCOUNT_PATH) return false;
    put_text(account->name, fields[0]);
    put_text(account->home, fields[5]);
    put_text(account->shell, fields[6]);
    return *account->name;
}

/* By name, or with a NULL name by number. */
static bool find_account(const char *name, uint32_t uid, struct account *account) {
    struct lines lines;
    char line[LINE_SIZE];
    bool found = false;
    if (!lines_open(&lines, "/etc/passwd")) return false;
    while (!found && lines_next(&lines, line)) {
        found = parse_account(line, account) && (name ? strcmp(account->name, name) == 0 : account->uid == uid);
    }
    close(lines.fd);
    return found;
}

bool account_by_name(const char *name, struct account *account) { return find_account(name, 0, account); }
bool account_by_uid(uint32_t uid, struct account *account) { return find_account(NULL, uid, account); }

static bool has_member(char *members, const char *name) {
    while (members && *members) {
        char *comma = strchr(members, ',');
        if (comma) *comma++ = 0;
        if (strcmp(members, name) == 0) return true;
        members = comma;
    }
    return false;
}

unsigned account_groups(const char *name, gid_t *groups, unsigned max) {
    struct lines lines;
    char line[LINE_SIZE], *fields[FIELDS];
    unsigned count = 0;
    uint32_t gid;
    if (!lines_open(&lines, "/etc/group")) return 0;
    while (count < max && lines_next(&lines, line)) {
        if (split(line, fields, 4) == 4 && number_of(fields[2], &gid) && has_member(fields[3], name)) groups[count++] = gid;
    }
    close(lines.fd);
    return count;
}

void user_label(uint32_t uid, char label[ACCOUNT_NAME]) {
    struct account account;
    if (account_by_uid(uid, &account)) put_text(label, account.name);
    else put_number(label, uid);
}

void group_label(uint32_t gid, char label[ACCOUNT_NAME]) {
    struct lines lines;
    char line[LINE_SIZE], *fields[FIELDS];
    uint32_t number;
    bool found = false;
    if (lines_open(&lines, "/etc/group")) {
        while (!found && lines_next(&lines, line)) {
            found = split(line, fields, 3) == 3 && number_of(fields[2], &number) && number == gid && *fields[0] &&
                    strlen(fields[0]) < ACCOUNT_NAME;
        }
        close(lines.fd);
    }
    if (found) put_text(label, fields[0]);
    else put_number(label, gid);
}
