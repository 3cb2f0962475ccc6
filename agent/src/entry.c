#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "wire.h"

static uint8_t type_of(mode_t bits) {
    if (S_ISREG(bits)) return ENTRY_FILE;
    if (S_ISDIR(bits)) return ENTRY_DIRECTORY;
    return S_ISLNK(bits) ? ENTRY_SYMLINK : ENTRY_OTHER;
}

static void look_up(struct labels *labels, uint32_t uid, uint32_t gid) {
    if (!labels->known || labels->uid != uid) user_label(uid, labels->user);
    if (!labels->known || labels->gid != gid) group_label(gid, labels->group);
    labels->uid = uid;
    labels->gid = gid;
    labels->known = true;
}

void entry_write(struct writer *w, const char *path, const struct stat *found, const char *target,
                 const struct identity *identity, struct labels *labels) {
    uint32_t uid = identity_sees(identity, found->st_uid), gid = identity_sees(identity, found->st_gid);
    int64_t modified = (int64_t)found->st_mtim.tv_sec * 1000000 + found->st_mtim.tv_nsec / 1000;
    look_up(labels, uid, gid);
    write_text(w, path);
    write_u8(w, type_of(found->st_mode));
    write_u64(w, (uint64_t)found->st_size);
    write_u32(w, found->st_mode & 07777);
    write_u32(w, uid);
    write_u32(w, gid);
    write_text(w, labels->user);
    write_text(w, labels->group);
    write_u64(w, modified > 0 ? (uint64_t)modified : 0);
    write_text(w, target);
}

int entry_write_at(struct writer *w, const char *path, int directory, const char *name, int flags,
                   const struct identity *identity, struct labels *labels) {
    struct stat found;
    char target[PATH_MAX] = "";
    if (fstatat(directory, name, &found, flags) < 0) return errno;
    if (S_ISLNK(found.st_mode)) {
        ssize_t length = readlinkat(directory, name, target, sizeof target - 1);
        if (length < 0) return errno;
        target[length] = 0;
    }
    entry_write(w, path, &found, target, identity, labels);
    return 0;
}
