#include "launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void plan_read(struct plan *plan, int fd)
{
    char *text = malloc(PLAN_MAX + 1);
    if (text == NULL)
        fail("plan", "memory");
    size_t length = 0;
    for (;;) {
        ssize_t got = read(fd, text + length, PLAN_MAX + 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail("plan", "read");
        if (got == 0)
            break;
        length += (size_t)got;
        if (length > PLAN_MAX)
            fail_with(E2BIG, "plan", "length");
    }
    if (length == 0 || text[length - 1] != '\0')
        fail_with(EINVAL, "plan", "end");
    *plan = (struct plan){.text = text, .length = length, .at = 0};
}

const char *plan_next(struct plan *plan)
{
    if (plan->at >= plan->length)
        return NULL;
    const char *word = plan->text + plan->at;
    plan->at += strlen(word) + 1;
    return word;
}

const char *plan_word(struct plan *plan)
{
    const char *word = plan_next(plan);
    if (word == NULL)
        fail_with(EINVAL, "plan", "a word is missing");
    return word;
}

static uint64_t number(const char *word, int base)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(word, &end, base);
    if (errno != 0 || end == word || *end != '\0' || word[0] == '-')
        fail_with(EINVAL, "plan", word);
    return value;
}

uint64_t plan_number(struct plan *plan)
{
    return number(plan_word(plan), 10);
}

uint64_t plan_octal(struct plan *plan)
{
    return number(plan_word(plan), 8);
}
