#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

char *turned(const char *word)
{
    size_t length = strlen(word);
    char *result = malloc(length + 1);
    if (result == NULL)
        exit(not_tried("no memory"));
    for (size_t i = 0; i < length; i++)
        result[i] = word[length - 1 - i];
    result[length] = '\0';
    return result;
}

long number(const char *word)
{
    char *end;
    errno = 0;
    long value = strtol(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0')
        exit(not_tried("not a number: %s", word));
    return value;
}

bool contains(const char *data, size_t length, const char *secret)
{
    size_t wanted = strlen(secret);
    return wanted > 0 && length >= wanted && memmem(data, length, secret, wanted) != NULL;
}

long read_some(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t got = 0;
    while (got < size) {
        ssize_t some = read(fd, buffer + got, size - got);
        if (some < 0 && got == 0) {
            int error = errno;
            (void)close(fd);
            errno = error;
            return -1;
        }
        if (some <= 0)
            break;
        got += (size_t)some;
    }
    (void)close(fd);
    return (long)got;
}

bool file_contains(const char *path, const char *secret)
{
    static char buffer[256 * 1024];
    long got = read_some(path, buffer, sizeof buffer);
    return got > 0 && contains(buffer, (size_t)got, secret);
}

bool next_word(const char **text, char *word, size_t size)
{
    *text += strspn(*text, " ");
    size_t length = strcspn(*text, " ");
    if (length == 0 || length >= size)
        return false;
    memcpy(word, *text, length);
    word[length] = '\0';
    *text += length;
    return true;
}

double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
