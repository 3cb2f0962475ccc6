#include "shortcut.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

enum { ADDED = 3 };

/* What a shell would take: there, executable for us, and not a directory. */
static bool runnable(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && !S_ISDIR(found.st_mode) && access(path, X_OK) == 0;
}

/* The first program of this name in PATH, or the name itself where it is a path. */
static bool find(char *into, size_t size, const char *name, const char *at) {
    size_t length = strlen(name);
    if (!length || length >= size) return false;
    if (strchr(name, '/')) {
        memcpy(into, name, length + 1);
        return true;
    }
    for (const char *end; at && *at; at = *end ? end + 1 : NULL) {
        end = strchrnul(at, ':');
        size_t part = (size_t)(end - at);
        /* What is relative, or ends in a slash, a shell reads and writes in its own way. */
        if (part < 2 || *at != '/' || end[-1] == '/' || part + length + 2 > size) return false;
        memcpy(into, at, part);
        into[part] = '/';
        memcpy(into + part + 1, name, length + 1);
        if (runnable(into)) return true;
    }
    return false;
}

void shortcut_run(char *const *words, char *const *env) {
    static char path[PATH_MAX + 2] = "_=", directory[PATH_MAX + 4] = "PWD=", level[] = "SHLVL=0";
    size_t count = 0;
    /* Only what begins at the root: a directory that was moved out of reach has another kind of name. */
    if (!getcwd(directory + 4, PATH_MAX) || directory[4] != '/') return;
    if (!find(path + 2, PATH_MAX, words[0], env_value(env, "PATH"))) return;
    while (env[count]) count++;
    char **own = calloc(count + ADDED + 1, sizeof *own);
    if (!own) return;
    memcpy(own, env, count * sizeof *own);
    own[count++] = directory;
    own[count++] = level;
    own[count++] = path;
    execve(path + 2, words, own);
    free(own);
}
