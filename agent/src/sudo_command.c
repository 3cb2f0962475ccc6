#include "sudo_command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/paddock/bin"

enum { MAX_COMMAND_TEXT = 4096, SET_VARIABLES = 9 };

static const char *const kept[] = {
    "TERM", "COLORTERM", "LANG", "LANGUAGE", "DISPLAY", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY",
    "NO_PROXY", "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "UV_BREAK_SYSTEM_PACKAGES",
    "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", NULL,
};

/* One letter; `value` is what follows it, for those that take one. Answers false for an unknown one. */
static bool read_flag(struct sudo_call *call, char flag, const char *value) {
    switch (flag) {
        case 'u': call->user = *value == '#' ? value + 1 : value; return true;
        case 'E': call->keep_environment = true; return true;
        case 'H': call->set_home = true; return true;
        case 'i': call->login = true; return true;
        case 's': call->shell = true; return true;
        case 'l': call->list = true; return true;
        case 'v': case 'k': case 'K': call->nothing = true; return true;
        case 'h': call->help = true; return true;
        case 'V': call->version = true; return true;
        case 'n': case 'S': case 'A': case 'B': case 'P': case 'p': return true; /* about passwords, of which there are none */
        default: return false;
    }
}

static bool read_word(struct sudo_call *call, const char *word) {
    static const struct {
        const char *word;
        char flag;
    } words[] = {
        {"user", 'u'}, {"preserve-env", 'E'}, {"set-home", 'H'}, {"login", 'i'}, {"shell", 's'}, {"list", 'l'}, {"validate", 'v'},
        {"reset-timestamp", 'k'}, {"remove-timestamp", 'K'}, {"help", 'h'}, {"version", 'V'}, {"non-interactive", 'n'}, {"stdin", 'S'},
    };
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].word) != length || strncmp(words[i].word, word, length) != 0) continue;
        return (words[i].flag != 'u' || word[length]) && read_flag(call, words[i].flag, word[length] ? word + length + 1 : "");
    }
    return false;
}

/* The letters of one argument; answers how many arguments more were used, or -1. */
static int read_letters(struct sudo_call *call, const char *letters, const char *next) {
    for (; *letters; letters++) {
        if (*letters != 'u' && *letters != 'p') {
            if (!read_flag(call, *letters, "")) return -1;
            continue;
        }
        const char *value = letters[1] ? letters + 1 : next;
        if (!value || !read_flag(call, *letters, value)) return -1;
        return letters[1] ? 0 : 1;
    }
    return 0;
}

const char *sudo_call_read(int argc, char **argv, struct sudo_call *call) {
    *call = (struct sudo_call){.user = "root"};
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(argv[at], "--user") == 0 && at + 1 < argc) {
            read_flag(call, 'u', argv[++at]);
        } else if (argv[at][1] == '-') {
            if (!read_word(call, argv[at] + 2)) return argv[at];
        } else {
            int more = read_letters(call, argv[at] + 1, at + 1 < argc ? argv[at + 1] : NULL);
            if (more < 0) return argv[at];
            at += more;
        }
    }
    call->assignments = argv + at;
    while (at < argc && argv[at][0] != '=' && strchr(argv[at], '=')) at++;
    call->assignment_count = (int)(argv + at - call->assignments);
    call->command = argv + at;
    return NULL;
}

/* Words as one line for a shell, each as it is. */
static char *quoted(char **words) {
    size_t room = 1;
    for (char **word = words; *word; word++) room += 2 * strlen(*word) + 1;
    char *line = malloc(room), *to = line;
    for (char **word = words; line && *word; word++) {
        for (const char *from = *word; *from; from++) {
            if (!isalnum((unsigned char)*from) && !strchr("_-$", *from)) *to++ = '\\';
            *to++ = *from;
        }
        if (word[1]) *to++ = ' ';
    }
    if (line) *to = 0;
    return line;
}

char **sudo_call_argv(const struct sudo_call *call, const struct account *target) {
    if (!call->login && !call->shell) return call->command;
    const char *own = getenv("SHELL"), *theirs = *target->shell ? target->shell : "/bin/sh";
    char **argv = calloc(5, sizeof *argv);
    int count = 0;
    if (!argv) return NULL;
    argv[count++] = strdup(call->login || !own || !*own ? theirs : own);
    if (call->login) argv[count++] = strdup("-l");
    if (*call->command) {
        argv[count++] = strdup("-c");
        argv[count++] = quoted(call->command);
    }
    for (int i = 0; i < count; i++) {
        if (!argv[i]) return NULL;
    }
    return argv;
}

static bool is_kept(const char *variable) {
    size_t length = strcspn(variable, "=");
    if (starts_with(variable, "LC_") || starts_with(variable, "PIP_")) return true;
    for (const char *const *name = kept; *name; name++) {
        if (strlen(*name) == length && strncmp(*name, variable, length) == 0) return true;
    }
    return false;
}

/* Sets a variable in a list that has room for it. */
static bool set(char **list, size_t *count, const char *name, const char *value) {
    size_t length = strlen(name);
    char *text = malloc(length + strlen(value) + 2);
    if (!text) return false;
    put_text(put_text(put_text(text, name), "="), value);
    for (size_t i = 0; i < *count; i++) {
        if (strncmp(list[i], text, length + 1) == 0) {
            list[i] = text;
            return true;
        }
    }
    list[(*count)++] = text;
    return true;
}

static void command_text(char text[MAX_COMMAND_TEXT], char **argv) {
    size_t length = 0;
    for (char **word = argv; *word && length + strlen(*word) + 2 < MAX_COMMAND_TEXT; word++) {
        if (length) text[length++] = ' ';
        length = (size_t)(put_text(text + length, *word) - text);
    }
    text[length] = 0;
}

char **sudo_call_environment(const struct sudo_call *call, const struct account *target, char **env, char **argv) {
    char number[2][NUMBER_SIZE], name[ACCOUNT_NAME], command[MAX_COMMAND_TEXT];
    size_t count = 0, room = SET_VARIABLES + (size_t)call->assignment_count + 1;
    for (char **variable = env; *variable; variable++) room++;
    char **list = calloc(room, sizeof *list);
    if (!list) return NULL;
    for (char **variable = env; *variable; variable++) {
        if ((call->keep_environment && !call->login) || is_kept(*variable)) list[count++] = *variable;
    }
    put_number(number[0], getuid());
    put_number(number[1], getgid());
    user_label(getuid(), name);
    command_text(command, argv);
    bool home = !call->keep_environment || call->set_home || call->login || !env_value(env, "HOME");
    bool done = (!home || set(list, &count, "HOME", target->home)) && set(list, &count, "USER", target->name) &&
                set(list, &count, "LOGNAME", target->name) && set(list, &count, "PATH", SECURE_PATH) &&
                set(list, &count, "SHELL", *target->shell ? target->shell : "/bin/sh") &&
                set(list, &count, "SUDO_USER", name) && set(list, &count, "SUDO_UID", number[0]) &&
                set(list, &count, "SUDO_GID", number[1]) && set(list, &count, "SUDO_COMMAND", command);
    for (int i = 0; done && i < call->assignment_count; i++) {
        char *equals = strchr(call->assignments[i], '=');
        *equals = 0;
        done = set(list, &count, call->assignments[i], equals + 1);
        *equals = '=';
    }
    return done ? list : NULL;
}
