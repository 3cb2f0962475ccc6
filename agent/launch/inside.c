#include "inside.h"

#include "kernel.h"
#include "launch.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static int root = -1;
static uint64_t owner; /* of what is made here: an overlay refuses an id that its upper layer does not know */

void inside_belongs_to(uint64_t id)
{
    owner = id;
}

void inside_begin(void)
{
    inside_end();
    root = open("root", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        fail("root", "open");
}

void inside_end(void)
{
    if (root >= 0)
        (void)close(root);
    root = -1;
}

int inside_open(const char *path, int flags)
{
    struct k_open_how how = {
        .flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
        .resolve = K_RESOLVE_IN_ROOT | K_RESOLVE_NO_MAGICLINKS,
    };
    int fd;
    do
        fd = k_openat2(root, path, &how);
    while (fd < 0 && errno == EAGAIN); /* a rename went on meanwhile */
    return fd;
}

/* The directory that holds the last name of a path; parents that are missing are made. */
static int parent_of(const char *path, char *name)
{
    char copy[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof copy)
        fail_with(ENAMETOOLONG, "root", path);
    memcpy(copy, path, length + 1);
    char *slash = strrchr(copy, '/');
    const char *last = slash == NULL ? copy : slash + 1;
    if (last[0] == '\0' || strlen(last) > NAME_MAX || strcmp(last, "..") == 0 || strcmp(last, ".") == 0)
        fail_with(EINVAL, "root", path);
    memcpy(name, last, strlen(last) + 1);
    if (slash == NULL || slash == copy)
        return inside_open("/", O_PATH | O_DIRECTORY);
    *slash = '\0';
    return inside_make(copy, 1);
}

int inside_make(const char *path, int directory)
{
    int fd = inside_open(path, O_PATH);
    if (fd >= 0)
        return fd;
    if (errno != ENOENT)
        fail("root", path);
    char name[NAME_MAX + 1];
    int parent = parent_of(path, name);
    if (parent < 0)
        fail("root", path);
    act_as(owner);
    if (directory) {
        if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
            fail("root", path);
    } else {
        int made = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (made < 0)
            fail("root", path);
        (void)close(made);
    }
    act_as(0);
    (void)close(parent);
    fd = inside_open(path, O_PATH);
    if (fd < 0)
        fail("root", path);
    return fd;
}

void inside_link(const char *text, const char *path)
{
    char name[NAME_MAX + 1];
    int parent = parent_of(path, name);
    if (parent < 0)
        fail("root", path);
    act_as(owner);
    if (symlinkat(text, parent, name) < 0 && errno != EEXIST)
        fail("root", path);
    act_as(0);
    (void)close(parent);
}
