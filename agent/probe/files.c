/* Files of the host and of other sandboxes. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The words: a path as it is on the host, and the secret in it. The text: what to put before the path. */
static enum verdict host_file(const struct call *call)
{
    char path[2 * PATH_MAX];
    char before[PATH_MAX];
    const char *secret = turned(call->words[1]);
    const char *text = call->attempt->text;
    int tried = 0;
    int error = 0;
    while (next_word(&text, before, sizeof before)) {
        (void)snprintf(path, sizeof path, "%s%s", before, call->words[0]);
        if (file_contains(path, secret))
            return not_refused("read the secret at %s", path);
        error = errno;
        tried++;
    }
    return refused("%d ways, the last: %s", tried, strerror(error));
}

static unsigned hex_digit(char digit)
{
    return (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* A file by its number in the file system, without any path. The words: the kind of handle and its bytes, in hex. */
static enum verdict host_file_by_handle(const struct call *call)
{
    struct {
        unsigned size;
        int type;
        unsigned char bytes[128];
    } handle = {0, 0, {0}};
    const char *hex = call->words[1];
    const char *secret = turned(call->words[2]);
    char buffer[4096];
    handle.type = (int)number(call->words[0]);
    for (; hex[0] != '\0' && hex[1] != '\0' && handle.size < sizeof handle.bytes; hex += 2)
        handle.bytes[handle.size++] = (unsigned char)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
    static const char *const mounts[] = {"/", "/usr", "/workspace", "/run/paddock/agent", "/etc"};
    int error = 0;
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        int mount = open(mounts[i], O_RDONLY | O_CLOEXEC);
        if (mount < 0)
            continue;
        int fd = (int)syscall(SYS_open_by_handle_at, mount, &handle, O_RDONLY);
        error = errno;
        if (fd >= 0 && contains(buffer, (size_t)read(fd, buffer, sizeof buffer), secret))
            return not_refused("read the secret through a handle on the file system of %s", mounts[i]);
        (void)close(mount);
        if (fd >= 0 || (error != EPERM && error != ENOSYS))
            return not_refused("file handles are open to use on %s: %s", mounts[i], strerror(error));
    }
    return refused("open_by_handle_at: %s", strerror(error));
}

/* A password field of any account that could be a hash. */
static enum verdict host_passwords(const struct call *call)
{
    static char buffer[64 * 1024];
    (void)call;
    long got = read_some("/etc/shadow", buffer, sizeof buffer - 1);
    if (got < 0)
        return refused("/etc/shadow: %s", strerror(errno));
    buffer[got] = '\0';
    for (char *line = strtok(buffer, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const char *field = strchr(line, ':');
        if (field != NULL && strcspn(field + 1, ":") > 4)
            return not_refused("a password hash of the host: %.20s...", line);
    }
    return refused("/etc/shadow is the sandbox's own and holds no password");
}

/* The text: paths that exist on many hosts and in no sandbox. */
static enum verdict paths_absent(const struct call *call)
{
    char path[PATH_MAX];
    const char *text = call->attempt->text;
    int tried = 0;
    while (next_word(&text, path, sizeof path)) {
        struct stat status;
        if (stat(path, &status) == 0 && access(path, R_OK) == 0)
            return not_refused("%s is there", path);
        tried++;
    }
    return refused("none of %d paths is there", tried);
}

static enum verdict server_folder(const struct call *call)
{
    struct stat status;
    if (stat(call->words[0], &status) == 0)
        return not_refused("the folder of the server is there");
    return refused("%s", strerror(errno));
}

static bool is_secret_file(const char *path, const char *name, const char *wanted)
{
    struct stat status;
    return strcmp(name, wanted) == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

enum { MOST_FOLDERS = 50000 };
static char *folders[MOST_FOLDERS];

/* Everywhere but in /usr, /proc and /sys for a file of this name: whatever way it may have come in. */
static enum verdict host_file_search(const struct call *call)
{
    size_t count = 0;
    size_t looked = 0;
    char path[PATH_MAX];
    folders[count++] = strdup("");
    while (count > 0 && looked < MOST_FOLDERS) {
        char *folder = folders[--count];
        DIR *open_folder = opendir(folder[0] == '\0' ? "/" : folder);
        looked++;
        for (const struct dirent *entry; open_folder != NULL && (entry = readdir(open_folder)) != NULL;) {
            if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
                continue;
            if (is_secret_file(path, entry->d_name, call->words[0]))
                return not_refused("found at %s", path);
            bool skipped = entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || strcmp(entry->d_name, "..") == 0);
            skipped = skipped || strcmp(path, "/proc") == 0 || strcmp(path, "/sys") == 0 || strcmp(path, "/usr") == 0;
            if (entry->d_type == DT_DIR && !skipped && count < MOST_FOLDERS)
                folders[count++] = strdup(path);
        }
        if (open_folder != NULL)
            (void)closedir(open_folder);
        free(folder);
    }
    return refused("not found in %zu folders", looked);
}

static enum verdict host_machine_id(const struct call *call)
{
    const char *id = turned(call->words[0]);
    static const char *const paths[] = {"/etc/machine-id", "/var/lib/dbus/machine-id", "/run/machine-id"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (file_contains(paths[i], id))
            return not_refused("%s is the host's", paths[i]);
    return refused("the sandbox has another one, or none");
}

static enum verdict host_name(const struct call *call)
{
    struct utsname names;
    const char *name = turned(call->words[0]);
    if (uname(&names) == 0 && strcmp(names.nodename, name) == 0)
        return not_refused("the host's name is known");
    return refused("the sandbox is called %s", names.nodename);
}

/* Whether it is only a private copy is for the host to say: it looks for a file of this name afterwards. */
static enum verdict write_to_system(const struct call *call)
{
    static const char *const places[] = {"/usr/lib", "/usr/bin", "/etc", "/var/lib/dpkg", "/lib", "/opt", "/boot"};
    char path[PATH_MAX];
    int made = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", places[i], call->words[0]);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            continue;
        (void)close(fd);
        made++;
    }
    return refused("%d of %zu places took a file, which must be private to this sandbox", made,
                   sizeof places / sizeof places[0]);
}

static enum verdict other_sandbox_file(const struct call *call)
{
    char path[PATH_MAX];
    const char *secret = turned(call->words[1]);
    const char *text = call->attempt->text;
    char before[64];
    while (next_word(&text, before, sizeof before)) {
        (void)snprintf(path, sizeof path, "%s/%s", before, call->words[0]);
        if (file_contains(path, secret))
            return not_refused("read the other sandbox's secret at %s", path);
    }
    return refused("nothing of it is here");
}

#define ROOTS "/root/"

const struct attempt file_attempts[] = {
    {"host-file", host_file, "/ //", 2, 0},
    {"host-file-by-parents", host_file, "/../../../.. /workspace/../../../.. /proc/self/cwd/../../../..", 2, 0},
    {"host-file-by-proc-root", host_file,
     "/proc/1/root /proc/self/root /proc/thread-self/root /proc/1/cwd/../.. /proc/1/task/1/root", 2, 0},
    {"host-file-by-handle", host_file_by_handle, NULL, 3, 0},
    {"host-file-search", host_file_search, NULL, 1, 0},
    {"host-passwords", host_passwords, NULL, 0, 0},
    {"host-credentials", paths_absent,
     "/etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ed25519_key /etc/ssh/sshd_config /etc/ssl/private /etc/sudoers "
     "/etc/krb5.keytab /etc/docker /etc/kubernetes /etc/wireguard /etc/crontab " ROOTS ".ssh " ROOTS ".aws "
     ROOTS ".docker " ROOTS ".kube " ROOTS ".bash_history " ROOTS ".netrc " ROOTS ".gnupg " ROOTS ".config/gcloud",
     0, 0},
    {"host-records", paths_absent,
     "/boot/grub /var/log/auth.log /var/log/syslog /var/log/journal /var/log/dpkg.log /var/log/wtmp /var/lib/docker "
     "/var/lib/containerd /var/lib/systemd /var/lib/cloud /var/lib/private /var/spool/cron /var/mail/root /lost+found "
     "/swapfile /vmlinuz",
     0, 0},
    {"host-machine-id", host_machine_id, NULL, 1, 0},
    {"host-name", host_name, NULL, 1, 0},
    {"server-folder", server_folder, NULL, 1, 0},
    {"system-write-through", write_to_system, NULL, 1, 0},
    {"other-sandbox-file", other_sandbox_file, "/workspace /tmp /home/user /dev/shm /run /var/tmp", 2, 0},
    {NULL, NULL, NULL, 0, 0},
};
