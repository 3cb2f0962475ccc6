#include "probe.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_SECONDS = 60 };

static const struct attempt *const tables[] = {
    file_attempts,    process_attempts, agent_attempts,     mount_attempts,    namespace_attempts,
    kernel_attempts,  machine_attempts, node_attempts,      network_attempts,  reach_attempts,
    privilege_attempts, terminal_attempts, memory_attempts, flood_attempts,
};

enum { TABLES = sizeof tables / sizeof tables[0] };

static const struct attempt *find_in(const struct attempt *table, const char *name)
{
    for (const struct attempt *attempt = table; attempt->name != NULL; attempt++)
        if (strcmp(attempt->name, name) == 0)
            return attempt;
    return NULL;
}

static const struct attempt *find(const char *name)
{
    const struct attempt *found = find_in(helpers, name);
    for (size_t i = 0; i < TABLES && found == NULL; i++)
        found = find_in(tables[i], name);
    return found;
}

static int list(void)
{
    for (size_t i = 0; i < TABLES; i++)
        for (const struct attempt *attempt = tables[i]; attempt->name != NULL; attempt++)
            (void)puts(attempt->name);
    return 0;
}

static void too_long(int signal)
{
    static const char text[] = "it took too long\n";
    (void)signal;
    (void)!write(STDOUT_FILENO, text, sizeof text - 1);
    _exit(NOT_TRIED);
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "list") == 0)
        return list();
    if (count < 3 || strcmp(words[1], "run") != 0) {
        (void)fputs("usage: paddock-probe list | run NAME [ARGUMENT...]\n", stderr);
        return NOT_TRIED;
    }
    const struct attempt *attempt = find(words[2]);
    if (attempt == NULL)
        return (int)not_tried("there is no attempt %s", words[2]);
    if (count - 3 < attempt->words)
        return (int)not_tried("%s needs %d more words", words[2], attempt->words - (count - 3));
    (void)signal(SIGALRM, too_long);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)alarm(LONGEST_SECONDS);
    struct call call = {.attempt = attempt, .count = count - 3, .words = words + 3};
    return (int)attempt->run(&call);
}
