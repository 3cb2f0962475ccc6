"""File operations from the host, below the sandbox's root. All of them block for microseconds, or say so."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paddock import errors
from paddock.machine.base import ATTRIBUTES, FileInfo, FileType
from paddock.providers.fake.beneath import Root, open_beneath, parts_of
from paddock.providers.fake.view import RESERVED

TEMPORARY = ".paddock-writing-"
"""How the files begin that are being written and not yet in their place: listings and watches leave them out."""

_CONFLICTS = {
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "something is there already",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.ELOOP: "it is a symlink that leads in circles",
    errno.ENXIO: "it is not a regular file",
    errno.EBUSY: "it is in use",
}
_FULL = {errno.ENOSPC: "there is no space left on the disk", errno.EDQUOT: "the disk quota is used up"}


@contextmanager
def path_errors(path: str) -> Iterator[None]:
    """The kernel's word on a path, in ours."""
    try:
        yield
    except OSError as error:
        details = {"path": path[:1000]}
        if error.errno == errno.ENOENT:
            raise errors.PathNotFound(f"There is no {path!r} in the sandbox.", details=details) from None
        if reason := _FULL.get(error.errno or 0):
            raise errors.DiskFull(f"{path!r}: {reason}.", details=details) from None
        if reason := _CONFLICTS.get(error.errno or 0):
            raise errors.PathConflict(f"{path!r}: {reason}.", details=details) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise errors.PathDenied.of(path, read_only=error.errno == errno.EROFS) from None
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
            raise errors.Invalid(f"{path[:200]!r} is not a usable path.", details=details) from None
        raise


class Files:
    def __init__(self, root: Path) -> None:
        self.root = root

    def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        plain = "/" + "/".join(parts_of(path))
        flags = os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW
        with path_errors(path), Root.opened(self.root) as root, root.open(plain, flags) as fd:
            found = os.fstat(fd)
            link = os.readlink("", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None
            return describe(plain, found, link)

    def resolve(self, path: str) -> FileInfo:
        plain = "/" + "/".join(parts_of(path))
        with path_errors(path), Root.opened(self.root) as root, root.open(plain, os.O_PATH) as fd:
            return describe(root.inside(fd), os.fstat(fd), None)

    def attributes(self, path: str) -> dict[str, str]:
        """None for a file that has none, and for one that is not there."""
        plain = "/" + "/".join(parts_of(path))
        try:
            with Root.opened(self.root) as root, root.open(plain, os.O_PATH | os.O_NOFOLLOW) as fd:
                itself = f"/proc/self/fd/{fd}"
                names = [name for name in os.listxattr(itself) if name.startswith(ATTRIBUTES)]
                values = [os.getxattr(itself, name).decode(errors="replace") for name in names]
        except OSError:
            return {}
        return dict(zip((name.removeprefix(ATTRIBUTES) for name in names), values, strict=True))

    def list_directory(self, path: str, depth: int) -> list[FileInfo]:
        if depth < 1:
            raise errors.Invalid("depth must be at least 1")
        plain = "/" + "/".join(parts_of(path))
        with Root.opened(self.root) as root:
            with path_errors(path):
                found = list(_entries(root, plain))
            level = found
            for _ in range(depth - 1):
                level = [
                    entry for folder in level if folder.type is FileType.DIRECTORY for entry in _below(root, folder)
                ]
                if not level:
                    break
                found += level
        return sorted(found, key=lambda entry: entry.path)

    def make_directory(self, path: str) -> bool:
        parts = parts_of(path)
        with path_errors(path), Root.opened(self.root) as root:
            return bool(parts) and make_directories(root, parts)

    def move(self, source: str, destination: str) -> FileInfo:
        if parts_of(source) == parts_of(destination):
            return self.stat(source)
        with Root.opened(self.root) as root, path_errors(source), root.parent(source) as (folder, name):
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            with path_errors(destination), root.parent(destination) as (into, as_name):
                self._rename(kind, (folder, name), (into, as_name), source, destination)
        return self.stat(destination)

    @staticmethod
    def _rename(kind: int, old: tuple[int, str], new: tuple[int, str], source: str, destination: str) -> None:
        try:
            os.rename(old[1], new[1], src_dir_fd=old[0], dst_dir_fd=new[0])
        except OSError as error:
            if error.errno == errno.EINVAL and stat.S_ISDIR(kind):
                raise errors.Invalid(f"{source!r} cannot be moved into itself ({destination!r}).") from None
            raise

    def remove(self, path: str, recursive: bool) -> None:
        """A symlink goes, never what it stands for. Recursive removal may take long: use a thread."""
        with path_errors(path), Root.opened(self.root) as root, root.parent(path) as (folder, name):
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
            elif recursive:
                _remove_tree(folder, name)
            else:
                os.rmdir(name, dir_fd=folder)

    def check_program(self, argv0: str, search: str) -> None:
        """That there is such a program; those of the host are in the view under their own paths."""
        places = [argv0] if "/" in argv0 else [f"{folder}/{argv0}" for folder in search.split(":") if folder]
        if not any(self._is_program(place) for place in places):
            raise errors.Invalid(f"The command could not be started: there is no program {argv0[:200]!r}.")

    def _is_program(self, path: str) -> bool:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if parts[:1] and parts[0] in RESERVED:
            return os.access(path, os.X_OK) and Path(path).is_file()
        try:
            found = self.stat("/" + "/".join(parts), follow=True)
        except errors.PaddockError:
            return False
        return found.type is FileType.FILE and bool(found.mode & 0o111)

    def check_working_directory(self, path: str) -> None:
        """That a command can start there; what the view mounts is only known inside."""
        parts = parts_of(path)
        if parts[:1] and parts[0] in RESERVED:
            return
        with path_errors(path), Root.opened(self.root) as root, root.open(path, os.O_PATH | os.O_DIRECTORY):
            pass


def describe(path: str, found: os.stat_result, link: str | None) -> FileInfo:
    return FileInfo(
        path=_readable(path),
        name=_readable(path.rpartition("/")[2] or "/"),
        type=_type(found.st_mode),
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        owner="user" if found.st_uid == os.geteuid() else str(found.st_uid),
        group="user" if found.st_gid == os.getegid() else str(found.st_gid),
        modified_at=found.st_mtime,
        symlink_target=None if link is None else _readable(link),
    )


def make_directories(root: Root, parts: list[str]) -> bool:
    """From the deepest directory that exists down; False when there was nothing to make."""
    missing: list[str] = []
    while (fd := _open_directory(root, parts[: len(parts) - len(missing)])) is None:
        missing.insert(0, parts[len(parts) - len(missing) - 1])
    try:
        for name in missing:
            root.check_changeable(fd, name, "/" + "/".join(parts))
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=fd)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
    finally:
        os.close(fd)
    return bool(missing)


def _open_directory(root: Root, parts: list[str]) -> int | None:
    try:
        return open_beneath(root.fd, "/" + "/".join(parts), os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return None


def _entries(root: Root, path: str, flags: int = 0) -> Iterator[FileInfo]:
    with root.open(path, os.O_RDONLY | os.O_DIRECTORY | flags) as fd:
        for name in os.listdir(fd):  # noqa: PTH208
            if name.startswith(TEMPORARY):
                continue
            with suppress(FileNotFoundError):  # gone meanwhile
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                link = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None
                yield describe(f"{path.rstrip('/')}/{name}", found, link)


def _below(root: Root, folder: FileInfo) -> list[FileInfo]:
    """What is in a directory that was found on the way; nothing when it is gone by now, or closed to us."""
    try:
        return list(_entries(root, folder.path, os.O_NOFOLLOW))
    except OSError:
        return []


def _remove_tree(folder: int, name: str) -> None:
    try:
        shutil.rmtree(name, dir_fd=folder)
    except RecursionError:  # deeper than Python goes
        here = f"/proc/self/fd/{folder}"
        subprocess.run(["rm", "-rf", "--", name], cwd=here, pass_fds=[folder], check=True, capture_output=True)


def _type(mode: int) -> FileType:
    if stat.S_ISREG(mode):
        return FileType.FILE
    if stat.S_ISDIR(mode):
        return FileType.DIRECTORY
    return FileType.SYMLINK if stat.S_ISLNK(mode) else FileType.OTHER


def _readable(name: str) -> str:
    """Names are bytes; what is not UTF-8 is shown as such, because answers are text."""
    return os.fsencode(name).decode(errors="replace")
