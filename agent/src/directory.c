#include "directory.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct kernel_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

void directory_begin(struct directory *directory, int fd) {
    directory->fd = fd;
    directory->error = 0;
    directory->at = directory->have = 0;
}

void directory_again(struct directory *directory) {
    if (lseek(directory->fd, 0, SEEK_SET) < 0) directory->error = errno;
    directory->at = directory->have = 0;
}

const char *directory_next(struct directory *directory) {
    for (;;) {
        if (directory->at >= directory->have) {
            long got = syscall(SYS_getdents64, directory->fd, directory->buffer, sizeof directory->buffer);
            if (got < 0) directory->error = errno;
            if (got <= 0) return NULL;
            directory->have = (size_t)got;
            directory->at = 0;
        }
        struct kernel_entry *entry = (void *)(directory->buffer + directory->at);
        directory->at += entry->length;
        directory->type = entry->type;
        if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0) return entry->name;
    }
}

void close_between(int first, int last) {
    if (first > last) return;
    if (syscall(SYS_close_range, first, last, 0) == 0) return;
    /* Kernels before 5.9 do not know it. */
    struct rlimit limit = {1024, 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    int top = limit.rlim_cur > 65536 ? 65536 : (int)limit.rlim_cur;
    for (int fd = first; fd <= last && fd < top; fd++) close(fd);
}

void close_from(int first) { close_between(first, INT_MAX); }
