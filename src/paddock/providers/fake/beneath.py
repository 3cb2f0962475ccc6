"""Paths that cannot lead out: every look-up starts at the sandbox's root and the kernel keeps it below.

``openat2`` with RESOLVE_IN_ROOT treats that root as ``/`` for absolute symlinks and ``..`` alike, also while somebody
inside is exchanging directories for symlinks. A path is resolved once; what follows works on descriptors.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock import errors
from paddock.providers.fake.view import RESERVED

_OPENAT2 = 437
_IN_ROOT = 0x10
_NO_MAGIC_LINKS = 0x02
_MAX_LINKS = 40

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int, mode: int = 0) -> int:
    flags |= os.O_CLOEXEC if flags & os.O_PATH else os.O_CLOEXEC | os.O_NOCTTY
    how = _How(flags, mode, _IN_ROOT | _NO_MAGIC_LINKS)
    name = os.fsencode(path)
    while True:
        fd: int = _libc.syscall(_OPENAT2, root, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        if (number := ctypes.get_errno()) not in (errno.EINTR, errno.EAGAIN):  # EAGAIN: a rename came in between
            raise OSError(number, os.strerror(number), path)


def parts_of(path: str) -> list[str]:
    """What the path names, one by one; refused when that is not plain from reading it."""
    if not path.startswith("/"):
        raise errors.Invalid(f"{path[:200]!r} must be absolute, for example /workspace/notes.txt.")
    if "\0" in path:
        raise errors.Invalid("A path must not contain a NUL character.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise errors.Invalid("A part of the path is longer than 255 bytes.")
    if ".." in parts:
        raise errors.Invalid(f"{path[:200]!r} must not contain '..'.")
    return parts


class Root:
    """An open root directory."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Root]:
        try:
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise errors.SandboxNotFound.by_id(path.parent.name) from None
        try:
            yield cls(fd)
        finally:
            os.close(fd)

    @contextmanager
    def open(self, path: str, flags: int, mode: int = 0) -> Iterator[int]:
        fd = open_beneath(self.fd, path, flags, mode)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """To change something: its directory and its name there, which is not followed if it is a symlink."""
        parts = parts_of(path)
        if not parts:
            raise errors.PathDenied("The root directory itself cannot be changed.")
        with self.open("/" + "/".join(parts[:-1]), os.O_PATH | os.O_DIRECTORY) as fd:
            self.check_changeable(fd, parts[-1], path)
            yield fd, parts[-1]

    @contextmanager
    def target(self, path: str) -> Iterator[tuple[int, str]]:
        """Like ``parent``, but of what a symlink at the end stands for, whether that exists yet or not."""
        here = path
        parts_of(path)
        for _ in range(_MAX_LINKS):
            folder, _, name = here.rstrip("/").rpartition("/")
            if name in ("", ".", ".."):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            with self.open(folder or "/", os.O_PATH | os.O_DIRECTORY) as fd:
                self.check_changeable(fd, name, path)
                if (link := _link_at(fd, name)) is None:
                    yield fd, name
                    return
                here = link if link.startswith("/") else f"{folder}/{link}"
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def inside(self, fd: int) -> str:
        """The path of an open file as the sandbox sees it, with no symlink in it."""
        here = Path("/proc/self/fd", str(fd)).readlink()
        root = Path("/proc/self/fd", str(self.fd)).readlink()
        if not here.is_relative_to(root):  # the whole sandbox was renamed in this moment: it is being deleted
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(here))
        return str(Path("/") / here.relative_to(root))

    def check_changeable(self, folder: int, name: str, path: str) -> None:
        """Refuse what the view mounts over, by whatever way one came to it."""
        if (self.inside(folder).strip("/") or name).split("/")[0] in RESERVED:
            raise errors.PathDenied(f"{path!r} belongs to the system and cannot be changed.")


def _link_at(folder: int, name: str) -> str | None:
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return os.readlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    return None
