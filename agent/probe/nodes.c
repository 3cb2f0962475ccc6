/* Devices, /proc and /sys: files that are more than files. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The text: paths, none of which may be opened for writing. Nothing is written. */
static enum verdict not_writable(const struct call *call)
{
    char path[256];
    const char *text = call->attempt->text;
    int error = 0;
    while (next_word(&text, path, sizeof path)) {
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
            return not_refused("%s is open for writing", path);
        error = errno;
    }
    return refused("%s", strerror(error));
}

/* The text: paths, none of which may give a byte that is not 0 (masked files are empty, masked addresses are 0). */
static enum verdict not_readable(const struct call *call)
{
    char path[256];
    char buffer[4096];
    const char *text = call->attempt->text;
    while (next_word(&text, path, sizeof path)) {
        long got = read_some(path, buffer, sizeof buffer);
        if (got > 0)
            return not_refused("read %ld bytes of %s", got, path);
    }
    return refused("absent, empty or forbidden");
}

/* The text: devices, none of which may be there. Opening some of them for reading has no effect. */
static enum verdict no_device(const struct call *call)
{
    char path[256];
    const char *text = call->attempt->text;
    int tried = 0;
    while (next_word(&text, path, sizeof path)) {
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
            return not_refused("%s is open", path);
        tried++;
    }
    return refused("none of %d is there", tried);
}

static enum verdict make_device(const struct call *call)
{
    char path[] = "/tmp/probe-node-XXXXXX";
    (void)call;
    int made = mkstemp(path);
    if (made < 0)
        return not_tried("%s: %s", path, strerror(errno));
    (void)close(made);
    (void)unlink(path);
    bool block = strcmp(call->attempt->text, "block") == 0;
    dev_t device = block ? makedev(7, 0) : makedev(1, (unsigned)call->attempt->number);
    long result = mknod(path, (block ? S_IFBLK : S_IFCHR) | 0600, device);
    int error = errno;
    if (result == 0)
        (void)unlink(path);
    errno = error;
    return judge(result, "mknod");
}

/* To what they are: the nodes in /dev are the host's own. */
static enum verdict device_permissions(const struct call *call)
{
    char path[256];
    const char *text = call->attempt->text;
    while (next_word(&text, path, sizeof path)) {
        struct stat status;
        if (stat(path, &status) < 0)
            continue;
        if (chmod(path, status.st_mode & 07777) == 0)
            return not_refused("the permissions of %s can be changed", path);
        if (chown(path, 0, 0) == 0)
            return not_refused("the owner of %s can be changed", path);
    }
    return refused("chmod, chown: %s", strerror(errno));
}

static enum verdict kernel_addresses(const struct call *call)
{
    char buffer[8192];
    (void)call;
    long got = read_some("/proc/kallsyms", buffer, sizeof buffer - 1);
    if (got <= 0)
        return refused("/proc/kallsyms is absent, empty or forbidden");
    buffer[got] = '\0';
    if (strtoull(buffer, NULL, 16) != 0)
        return not_refused("the kernel's addresses can be read");
    return refused("all addresses are 0");
}

/* Which physical page a page lies on, as attacks on memory chips need it. */
static enum verdict physical_addresses(const struct call *call)
{
    uint64_t entry = 0;
    volatile char page = 1;
    (void)call;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return refused("/proc/self/pagemap: %s", strerror(errno));
    long size = sysconf(_SC_PAGESIZE);
    off_t place = (off_t)((uintptr_t)&page / (uintptr_t)size * sizeof entry);
    if (pread(fd, &entry, sizeof entry, place) == (ssize_t)sizeof entry && (entry & ((1ULL << 55) - 1)) != 0)
        return not_refused("a physical address can be read");
    return refused("the addresses in it are 0");
}

const struct attempt node_attempts[] = {
    {"device-memory", no_device, "/dev/mem /dev/kmem /dev/port /dev/nvram /dev/cpu/0/msr", 0, 0},
    {"device-disks", no_device,
     "/dev/sda /dev/sda1 /dev/vda /dev/vda1 /dev/nvme0n1 /dev/xvda /dev/dm-0 /dev/md0 /dev/loop0 /dev/root", 0, 0},
    {"device-loop-control", no_device, "/dev/loop-control /dev/mapper/control /dev/btrfs-control", 0, 0},
    {"device-virtual-machines", no_device, "/dev/kvm /dev/vhost-net /dev/vhost-vsock /dev/vsock /dev/vfio/vfio", 0, 0},
    {"device-kernel-log", no_device, "/dev/kmsg /dev/log /dev/initctl", 0, 0},
    {"device-fuse", no_device, "/dev/fuse /dev/cuse", 0, 0},
    {"device-tunnel", no_device, "/dev/net/tun /dev/ppp", 0, 0},
    {"device-input", no_device, "/dev/uinput /dev/input/event0 /dev/userio /dev/uhid", 0, 0},
    {"device-graphics", no_device, "/dev/dri/card0 /dev/dri/renderD128 /dev/fb0 /dev/nvidiactl", 0, 0},
    {"device-console", no_device, "/dev/console /dev/tty0 /dev/tty1 /dev/ttyS0 /dev/hvc0 /dev/vcs", 0, 0},
    {"device-controlling-terminal", no_device, "/dev/tty", 0, 0},
    {"device-new-block", make_device, "block", 0, 0},
    {"device-new-memory", make_device, "character", 0, 1},
    {"device-new-kernel-log", make_device, "character", 0, 11},
    {"device-permissions", device_permissions, "/dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty", 0, 0},
    {"proc-core-pattern", not_writable, "/proc/sys/kernel/core_pattern", 0, 0},
    {"proc-modprobe", not_writable, "/proc/sys/kernel/modprobe /proc/sys/kernel/hotplug", 0, 0},
    {"proc-sysrq", not_writable, "/proc/sysrq-trigger /proc/sys/kernel/sysrq", 0, 0},
    {"proc-memory-settings", not_writable,
     "/proc/sys/vm/drop_caches /proc/sys/vm/overcommit_memory /proc/sys/vm/panic_on_oom /proc/sys/vm/mmap_min_addr "
     "/proc/sys/vm/swappiness",
     0, 0},
    {"proc-kernel-settings", not_writable,
     "/proc/sys/kernel/randomize_va_space /proc/sys/kernel/panic /proc/sys/kernel/kptr_restrict "
     "/proc/sys/kernel/yama/ptrace_scope /proc/sys/kernel/pid_max /proc/sys/kernel/ns_last_pid "
     "/proc/sys/kernel/unprivileged_bpf_disabled /proc/sys/kernel/hostname",
     0, 0},
    {"proc-network-settings", not_writable,
     "/proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/all/route_localnet /proc/sys/net/ipv4/conf/all/forwarding "
     "/proc/sys/net/ipv6/conf/all/forwarding /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/ping_group_range",
     0, 0},
    {"proc-file-settings", not_writable,
     "/proc/sys/fs/file-max /proc/sys/fs/suid_dumpable /proc/sys/fs/protected_symlinks /proc/sys/fs/pipe-max-size "
     "/proc/sys/fs/binfmt_misc/register",
     0, 0},
    {"proc-user-settings", not_writable,
     "/proc/sys/user/max_user_namespaces /proc/sys/user/max_inotify_instances /proc/sys/kernel/keys/maxkeys", 0, 0},
    {"proc-interrupts", not_writable, "/proc/irq/default_smp_affinity /proc/irq/0/smp_affinity /proc/mtrr", 0, 0},
    {"proc-kernel-memory", not_readable, "/proc/kcore", 0, 0},
    {"proc-kernel-addresses", kernel_addresses, NULL, 0, 0},
    {"proc-physical-addresses", physical_addresses, NULL, 0, 0},
    {"proc-physical-pages", not_readable, "/proc/kpageflags /proc/kpagecount /proc/kpagecgroup", 0, 0},
    {"proc-kernel-log", not_readable, "/proc/kmsg", 0, 0},
    {"proc-keys", not_readable, "/proc/keys /proc/key-users", 0, 0},
    {"proc-host-activity", not_readable,
     "/proc/timer_list /proc/sched_debug /proc/latency_stats /proc/slabinfo /proc/vmallocinfo /proc/pagetypeinfo "
     "/proc/modules /proc/interrupts /proc/locks",
     0, 0},
    {"sys-helper", not_writable, "/sys/kernel/uevent_helper /sys/kernel/vmcoreinfo /sys/kernel/profiling", 0, 0},
    {"sys-power", not_writable, "/sys/power/state /sys/power/disk /sys/power/wake_lock", 0, 0},
    {"sys-processors", not_writable,
     "/sys/devices/system/cpu/cpu1/online /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor "
     "/sys/devices/system/cpu/smt/control",
     0, 0},
    {"sys-firmware", not_readable,
     "/sys/firmware/acpi/tables/DSDT /sys/firmware/dmi/tables/DMI /sys/class/dmi/id/product_uuid "
     "/sys/class/dmi/id/board_vendor /sys/class/dmi/id/product_name /sys/kernel/notes",
     0, 0},
    {"sys-disks", not_readable, "/sys/block/vda/size /sys/block/sda/size /sys/block/nvme0n1/size /sys/block/loop0/size "
     "/proc/partitions /proc/diskstats",
     0, 0},
    {"sys-network", not_readable, "/sys/class/net/eth0/address /sys/class/net/lo/address /sys/class/net/lo/mtu", 0, 0},
    {"sys-tracing", not_writable,
     "/sys/kernel/tracing/trace_marker /sys/kernel/tracing/tracing_on /sys/kernel/debug/sched/features "
     "/sys/kernel/debug/tracing/tracing_on",
     0, 0},
    {"sys-security", not_writable, "/sys/kernel/security/apparmor/.load /sys/fs/selinux/load /sys/fs/bpf", 0, 0},
    {"cgroup-tree", not_writable,
     "/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/unified/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs "
     "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory/release_agent /sys/fs/cgroup/release_agent "
     "/sys/fs/cgroup/memory.max /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/pids/pids.max",
     0, 0},
    {NULL, NULL, NULL, 0, 0},
};
