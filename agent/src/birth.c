#include "birth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "identity.h"
#include "text.h"

enum { PATIENCE_S = 60, GIVEN = 2, FURNISHED = 0700, NOT_YET = 0755 };

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    put_text(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* One byte with both descriptors; anything else is nobody we know. */
static bool receive(int from, int given[GIVEN]) {
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(GIVEN * sizeof(int))];
    } control = {0};
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    bool good = got == 1 && head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
                head->cmsg_len == CMSG_LEN(GIVEN * sizeof(int));
    if (good) memcpy(given, CMSG_DATA(head), GIVEN * sizeof(int));
    else errno = EPROTO;
    return good;
}

bool birth(const char *path, int *listener, int *filter) {
    int given[GIVEN];
    int server = connect_to(path);
    if (server < 0) return false;
    bool done = receive(server, given);
    int error = errno;
    close(server);
    errno = error;
    if (!done) return false;
    *listener = given[0];
    *filter = given[1];
    return true;
}

static bool make_path(const char *path, mode_t last) {
    char part[ACCOUNT_PATH];
    if (*path != '/' || strlen(path) >= sizeof part) return false;
    put_text(part, path);
    for (char *at = part + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST) return false;
        *at = '/';
    }
    return mkdir(part, last) == 0 || errno == EEXIST;
}

/* What is there already and somebody else's than root's stays his. */
static void give(const char *path, mode_t how, const struct account *account) {
    struct stat status;
    if (!make_path(path, how)) return;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return;
    if (fstat(folder, &status) == 0 && status.st_uid == 0 && fchown(folder, account->uid, account->gid) < 0) errno = 0;
    close(folder);
}

static void append(const char *path, const char *text) {
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    char last = '\n';
    if (file < 0) return;
    off_t size = lseek(file, 0, SEEK_END);
    if (size > 0 && pread(file, &last, 1, size - 1) != 1) last = '\n';
    if (last != '\n' && write(file, "\n", 1) != 1) errno = 0;
    if (write(file, text, strlen(text)) < 0) errno = 0;
    close(file);
}

static void enter_accounts(void) {
    struct account account;
    char label[ACCOUNT_NAME], line[NAME_SIZE * 2];
    mkdir("/etc", 0755);
    if (!account_by_name("root", &account)) append("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    if (!account_by_name("user", &account)) {
        const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
        put_text(put_text(put_text(line, "user:x:1000:1000:user:/home/user:"), shell), "\n");
        append("/etc/passwd", line);
    }
    group_label(0, label);
    if (strcmp(label, "0") == 0) append("/etc/group", "root:x:0:\n");
    group_label(USER_UID, label);
    if (strcmp(label, "1000") == 0) append("/etc/group", "user:x:1000:\n");
}

static void write_new(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (write(file, text, strlen(text)) < 0) errno = 0;
    close(file);
}

/* Package managers and login shells, whose environment is not the one that the server gives. The same files are in the
   layers of the local provider (providers/local/packages.py). What the image has stays. */
static void configure_packages(void) {
    write_new("/etc/pip.conf", "[global]\nbreak-system-packages = true\n");
    mkdir("/etc/paddock", 0755);
    write_new("/etc/paddock/npmrc", "prefix=${HOME}/.local\n");
    if (access("/etc/profile.d", F_OK) == 0) {
        write_new("/etc/profile.d/paddock.sh", "PATH=\"$HOME/.local/bin:/run/paddock/bin:$PATH\"\n");
    }
}

/* On a root that is read-only nothing of this can be done, and the agent knows both users without it. */
static void furnish(void) {
    struct identity user;
    enter_accounts();
    configure_packages();
    if (mkdir("/tmp", 01777) == 0 && chmod("/tmp", 01777) < 0) errno = 0;
    mkdir("/root", 0700);
    if (identity_resolve("user", &user) != 0) return;
    give("/workspace", 0755, &user.account);
    give(user.account.home, 0755, &user.account);
}

int birth_place(const char *path) {
    struct stat status;
    if (!make_path(path, NOT_YET)) return -1;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || fstat(folder, &status) < 0) return -1;
    /* Its mode is also the mark that the first start has been. */
    if ((status.st_mode & 07777) != FURNISHED) {
        if (mode == MODE_RANGE) furnish();
        if (fchmod(folder, FURNISHED) < 0) return -1;
    }
    return folder;
}
