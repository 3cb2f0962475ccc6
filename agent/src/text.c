#include "text.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

char *put_number(char *at, uint64_t value) {
    char digits[NUMBER_SIZE];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count) *at++ = digits[--count];
    *at = 0;
    return at;
}

char *put_text(char *at, const char *text) {
    size_t length = strlen(text);
    memcpy(at, text, length + 1);
    return at + length;
}

bool take_number(const char **at, uint64_t *value) {
    const char *begin = *at;
    *value = 0;
    while (**at >= '0' && **at <= '9') {
        if (*value > (UINT64_MAX - 9) / 10) return false;
        *value = *value * 10 + (uint64_t)(**at - '0');
        (*at)++;
    }
    return *at != begin;
}

bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

const char *env_value(char *const *env, const char *name) {
    size_t length = strlen(name);
    for (; *env; env++) {
        if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') return *env + length + 1;
    }
    return NULL;
}

bool read_number_file(const char *path, int64_t *value) {
    char text[32];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return false;
    text[got] = 0;
    const char *at = text + (text[0] == '-');
    uint64_t number;
    if (!take_number(&at, &number)) return false;
    *value = text[0] == '-' ? -(int64_t)number : (int64_t)number;
    return true;
}

bool write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}
