#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef LOOP_CONFIGURE
#define LOOP_CONFIGURE 0x4C0A
struct loop_config {
    __u32 fd;
    __u32 block_size;
    struct loop_info64 info;
    __u64 reserved[8];
};
#endif

enum { ATTEMPTS = 256 };

/* Others ask for free devices too: the one that was free a moment ago may be taken, so ask again. */
int loop_attach(int image, char *device, size_t size)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        fail("disk", "/dev/loop-control");
    struct loop_config config;
    memset(&config, 0, sizeof config);
    config.fd = (__u32)image;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            fail("disk", "no free loop device");
        (void)snprintf(device, size, "/dev/loop%d", number);
        int fd = open(device, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            if (errno == ENOENT || errno == EBUSY)
                continue; /* its node comes a moment later */
            fail("disk", device);
        }
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            (void)close(control);
            return fd;
        }
        int error = errno;
        (void)close(fd);
        if (error != EBUSY)
            fail_with(error, "disk", device);
    }
    fail_with(EBUSY, "disk", "loop devices");
}
