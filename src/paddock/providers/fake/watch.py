"""Changes below a directory, from inotify: armed when the context is entered, and never through a symlink.

(A library that walks the tree itself would follow symlinks out of the sandbox.)
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from paddock import errors
from paddock.machine.base import FileAct, FileChange, FileEvent, Watch
from paddock.providers.fake.beneath import Root, parts_of
from paddock.providers.fake.descriptors import readable
from paddock.providers.fake.files import TEMPORARY, path_errors

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _OVERFLOW, _IGNORED = 0x100, 0x200, 0x400, 0x4000, 0x8000
_ONLY_DIRECTORY, _IS_DIRECTORY = 0x1000000, 0x40000000
_MASK = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _ONLY_DIRECTORY
_DEEPEST = 200
"""Directories further down are not watched: each level takes a descriptor while it is looked through."""
_HEADER = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


@asynccontextmanager
async def watching(root_path: Path, path: str, recursive: bool) -> AsyncIterator[Watch]:
    plain = "/" + "/".join(parts_of(path))
    fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise errors.ProviderUnavailable(
            f"{path!r} cannot be watched: {os.strerror(ctypes.get_errno())}. The machine's limit is the sysctl "
            "fs.inotify.max_user_instances."
        )
    try:
        with Root.opened(root_path) as root:
            watch = _Watch(fd, root, recursive)
            with path_errors(path), root.open(plain, os.O_RDONLY | os.O_DIRECTORY) as folder:
                watch.add(folder, plain.rstrip("/"))
            yield watch
    finally:
        os.close(fd)


class _Watch(Watch):
    def __init__(self, fd: int, root: Root, recursive: bool) -> None:
        self._fd = fd
        self._root = root
        self._recursive = recursive
        self._paths: dict[int, str] = {}
        self._names: dict[int, set[str]] = {}
        """What is in each directory: a rename onto a known name is a change of it, not a new file."""
        self._pending: deque[FileEvent] = deque()
        self._first: int | None = None
        self._over = False

    async def __anext__(self) -> FileEvent:
        while not self._pending:
            if self._over:
                raise StopAsyncIteration
            await readable(self._fd)
            with suppress(BlockingIOError):
                self._take(os.read(self._fd, 1 << 16))
        return self._pending.popleft()

    async def settled(self) -> list[FileEvent]:
        with suppress(BlockingIOError):
            while not self._over:
                self._take(os.read(self._fd, 1 << 16))
        found = list(self._pending)
        self._pending.clear()
        return found

    def add(self, folder: int, path: str) -> list[str]:
        """Watch this open directory, and those below; answers with what is in it already."""
        number: int = _libc.inotify_add_watch(self._fd, f"/proc/self/fd/{folder}".encode(), _MASK)
        if number < 0:
            raise errors.ProviderUnavailable(
                f"{path!r} cannot be watched: {os.strerror(ctypes.get_errno())}. The machine's limit is the sysctl "
                "fs.inotify.max_user_watches."
            )
        self._first = number if self._first is None else self._first
        self._paths[number] = path
        names = os.listdir(folder)
        self._names[number] = set(names)
        found = []
        for name in names:
            if name.startswith(TEMPORARY):
                continue
            found.append(f"{path}/{name}")
            if self._recursive and path.count("/") < _DEEPEST:
                found += self._add_below(folder, name, path)
        return found

    def _add_below(self, folder: int, name: str, path: str) -> list[str]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return []
            below = os.open(name, flags, dir_fd=folder)
        except OSError:  # gone, exchanged, or closed to us
            return []
        try:
            return self.add(below, f"{path}/{name}")
        finally:
            os.close(below)

    def _take(self, data: bytes) -> None:
        for number, mask, name in _parse(data):
            if mask & _OVERFLOW and self._first in self._paths:
                self._emit(self._paths[self._first], FileChange.MODIFIED)
            elif mask & _IGNORED:
                self._paths.pop(number, None)
                self._names.pop(number, None)
                self._over = self._over or number == self._first
            elif number in self._paths and not name.startswith(TEMPORARY):
                self._note(number, mask, name)

    def _note(self, number: int, mask: int, name: str) -> None:
        path, names = self._paths[number], self._names[number]
        full = f"{path}/{name}" if name else path
        if mask & _DELETE_SELF:
            if number == self._first:
                self._emit(path, FileChange.REMOVED)
        elif mask & (_CREATE | _MOVED_TO):
            self._note_arrival(full, name, names, mask)
        elif mask & (_DELETE | _MOVED_FROM):
            names.discard(name)
            self._emit(full, FileChange.REMOVED, FileAct.RENAME if mask & _MOVED_FROM else FileAct.REMOVE)
            if mask & _MOVED_FROM and mask & _IS_DIRECTORY:
                self._forget(full)
        elif name:
            self._emit(full, FileChange.MODIFIED, FileAct.WRITE if mask & _MODIFY else FileAct.CHMOD)

    def _note_arrival(self, path: str, name: str, names: set[str], mask: int) -> None:
        if name in names:
            if mask & _MOVED_TO:
                self._emit(path, FileChange.MODIFIED, FileAct.CREATE)
            return  # else: made between arming and looking, and told already
        names.add(name)
        self._emit(path, FileChange.CREATED)
        if mask & _IS_DIRECTORY and self._recursive:
            with suppress(OSError), self._root.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as folder:
                for found in self.add(folder, path):
                    self._emit(found, FileChange.CREATED)

    def _forget(self, path: str) -> None:
        """It was moved away, and what happens to it now is none of ours, nor what is told of it already."""
        for number, below in list(self._paths.items()):
            if below == path or below.startswith(path + "/"):
                _libc.inotify_rm_watch(self._fd, number)
                del self._paths[number], self._names[number]

    def _emit(self, path: str, change: FileChange, act: FileAct | None = None) -> None:
        event = FileEvent(os.fsencode(path).decode(errors="replace") or "/", change, act)
        last = self._pending[-1] if self._pending else None
        if last != event or last.done is not event.done:
            self._pending.append(event)


def _parse(data: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(data):
        number, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield number, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
