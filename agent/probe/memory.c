/* Memory and disk: as much as there is, and more. Each stops at what it was told is too much. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };
static char piece[PIECE];

/* Takes megabytes, until it is stopped (and may exit) or has `most` of them (and returns). */
typedef void taker(long most);

static void take_pages(long most)
{
    for (long i = 0; i < most; i++) {
        void *pages = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            _exit(0);
        memset(pages, 1, PIECE);
    }
}

static void take_memory_file(long most)
{
    int fd = (int)syscall(SYS_memfd_create, "probe", 1);
    for (long i = 0; i < most; i++)
        if (fd < 0 || write(fd, piece, PIECE) != PIECE)
            _exit(0);
}

static void take_shared_folder(long most)
{
    char path[] = "/dev/shm/probe-XXXXXX";
    int fd = mkstemp(path);
    (void)unlink(path);
    for (long i = 0; i < most; i++)
        if (fd < 0 || write(fd, piece, PIECE) != PIECE)
            _exit(0);
}

/* Bytes that wait in sockets are the kernel's memory, not the process's. */
static void take_socket_buffers(long most)
{
    static const int size = PIECE;
    for (long i = 0; i < most; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
            _exit(0);
        (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        for (ssize_t put = 0, some = 0; put < PIECE && some >= 0; put += some)
            some = send(pair[0], piece, PIECE, MSG_NOSIGNAL);
    }
}

/* In a child, which is the one that the kernel shall end: the parent tells. Whether the child has got it all stands in
 * memory that they share: gVisor gives a process that the host's kernel has ended an exit code like any other. The
 * words: seconds, most megabytes. */
static enum verdict memory_bomb(const struct call *call, taker *take)
{
    double until = seconds_now() + (double)number(call->words[0]);
    long most = number(call->words[1]);
    atomic_bool *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int times = 0;
    if (all == MAP_FAILED)
        return not_tried("no memory: %s", strerror(errno));
    do {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
            (void)!write(fd, "1000", 4);
            take(most);
            atomic_store(all, true);
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return not_tried("fork: %s", strerror(errno));
        if (atomic_load(all))
            return not_refused("took %ld MB", most);
        times++;
    } while (seconds_now() < until);
    return refused("stopped below %ld MB, %d times", most, times);
}

static enum verdict memory_pages(const struct call *call)
{
    return memory_bomb(call, take_pages);
}

static enum verdict memory_file(const struct call *call)
{
    return memory_bomb(call, take_memory_file);
}

static enum verdict memory_shared(const struct call *call)
{
    return memory_bomb(call, take_shared_folder);
}

static enum verdict memory_sockets(const struct call *call)
{
    return memory_bomb(call, take_socket_buffers);
}

/* The words: most megabytes, and where. */
static enum verdict disk_fill(const struct call *call)
{
    char path[256];
    long most = number(call->words[0]);
    (void)snprintf(path, sizeof path, "%s/probe-fill", call->words[1]);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return not_tried("%s: %s", path, strerror(errno));
    long put = 0;
    while (put < most && write(fd, piece, PIECE) == PIECE)
        put++;
    int error = errno;
    (void)fsync(fd); /* blocks that were only promised must be there too */
    (void)close(fd);
    (void)unlink(path);
    if (put >= most)
        return not_refused("wrote %ld MB", put);
    return refused("%s after %ld MB", strerror(error), put);
}

static void remove_numbered(int folder, long count)
{
    char name[32];
    for (long i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "f%ld", i);
        (void)unlinkat(folder, name, 0);
    }
}

/* The words: most files, and where. */
static enum verdict inode_fill(const struct call *call)
{
    char path[256];
    char name[32];
    long most = number(call->words[0]);
    (void)snprintf(path, sizeof path, "%s/probe-inodes", call->words[1]);
    (void)mkdir(path, 0700);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return not_tried("%s: %s", path, strerror(errno));
    long made = 0;
    int error = 0;
    for (; made < most; made++) {
        (void)snprintf(name, sizeof name, "f%ld", made);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        error = errno;
        if (fd < 0)
            break;
        (void)close(fd);
    }
    remove_numbered(folder, made);
    (void)rmdir(path);
    if (made >= most)
        return not_refused("made %ld files", made);
    return refused("%s after %ld files", strerror(error), made);
}

const struct attempt memory_attempts[] = {
    {"bomb-memory", memory_pages, NULL, 2, 0},
    {"bomb-memory-file", memory_file, NULL, 2, 0},
    {"bomb-shared-memory", memory_shared, NULL, 2, 0},
    {"bomb-socket-buffers", memory_sockets, NULL, 2, 0},
    {"bomb-disk", disk_fill, NULL, 2, 0},
    {"bomb-inodes", inode_fill, NULL, 2, 0},
    {NULL, NULL, NULL, 0, 0},
};
