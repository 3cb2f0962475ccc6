"""File contents in and out, as streams: at most one chunk in memory, reads and writes in threads."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.machine.base import ATTRIBUTES, FileInfo
from paddock.machine.threads import in_thread
from paddock.providers.fake.beneath import Root, parts_of
from paddock.providers.fake.files import TEMPORARY, describe, make_directories, path_errors

CHUNK = 256 * 1024
_NEW_MODE = 0o644


@dataclass(frozen=True, slots=True)
class How:
    """A file is to be written so."""

    mode: int | None
    atomic: bool
    owned: bool
    """Watches are to see that it was given to its owner."""
    attributes: Mapping[str, str] | None


async def read_stream(root_path: Path, path: str, offset: int, limit: int | None) -> AsyncIterator[bytes]:
    if offset < 0 or (limit is not None and limit < 0):
        raise errors.Invalid("offset and limit must not be negative")
    parts_of(path)
    with ExitStack() as stack:
        with path_errors(path):
            root = stack.enter_context(Root.opened(root_path))
            # Without O_NONBLOCK, opening a FIFO would wait for its writer.
            fd = stack.enter_context(root.open(path, os.O_RDONLY | os.O_NONBLOCK))
            _must_be_regular(fd, path)
        left = limit
        while left is None or left > 0:
            size = CHUNK if left is None else min(CHUNK, left)
            data = await in_thread(os.pread, fd, size, offset)
            if not data:
                return
            offset += len(data)
            left = None if left is None else left - len(data)
            yield data


async def write_stream(root_path: Path, path: str, chunks: AsyncIterator[bytes], how: How) -> FileInfo:
    parts = parts_of(path)
    with path_errors(path), ExitStack() as stack:
        root = stack.enter_context(Root.opened(root_path))
        make_directories(root, parts[:-1])
        folder, name = stack.enter_context(root.target(path))
        if how.atomic:
            await _replace(folder, name, path, chunks, how)
        else:
            await _overwrite(folder, name, path, chunks, how)
        return describe("/" + "/".join(parts), os.stat(name, dir_fd=folder, follow_symlinks=False), None)


async def _replace(folder: int, name: str, path: str, chunks: AsyncIterator[bytes], how: How) -> None:
    kept = _mode_of(folder, name, path)
    temporary = TEMPORARY + secrets.token_hex(8)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        if how.attributes is not None:
            await in_thread(_pin, fd, how.attributes)
        await _pour(fd, chunks)
        os.fchmod(fd, next(bits for bits in (how.mode, kept, _NEW_MODE) if bits is not None))
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(fd)


async def _overwrite(folder: int, name: str, path: str, chunks: AsyncIterator[bytes], how: How) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(name, flags, _NEW_MODE, dir_fd=folder)
    try:
        _must_be_regular(fd, path)
        present = os.fstat(fd)
        if present.st_size:  # to a watch, cutting an empty file would be a change
            os.ftruncate(fd, 0)
        if how.mode is not None or how.owned:
            os.fchmod(fd, stat.S_IMODE(present.st_mode) if how.mode is None else how.mode)
        if how.attributes is not None:
            await in_thread(_pin, fd, how.attributes)
        await _pour(fd, chunks)
    finally:
        os.close(fd)


def _pin(fd: int, attributes: Mapping[str, str]) -> None:
    """These attributes instead of those that are pinned to the file; one that stays as it is is not touched."""
    wanted = {ATTRIBUTES + name: value.encode() for name, value in attributes.items()}
    try:
        present = [name for name in os.listxattr(fd) if name.startswith(ATTRIBUTES)]
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP or wanted:
            raise
        return  # a file system without attributes has none to take away
    for name in present:
        if name not in wanted:
            os.removexattr(fd, name)
    for name, value in wanted.items():
        os.setxattr(fd, name, value)


async def _pour(fd: int, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        if chunk:
            await in_thread(_write_all, fd, chunk)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _mode_of(folder: int, name: str, path: str) -> int | None:
    """The permissions of the file that will be replaced; anything but a file is in the way."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _not_regular(path, found.st_mode)
    return stat.S_IMODE(found.st_mode)


def _must_be_regular(fd: int, path: str) -> None:
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        raise _not_regular(path, kind)


def _not_regular(path: str, kind: int) -> errors.PathConflict:
    what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
    return errors.PathConflict(f"{path!r} is {what}.", details={"path": path[:1000]})
