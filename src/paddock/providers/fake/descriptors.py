"""File descriptors under asyncio, and the two kinds of locks that the folders of sandboxes are guarded with."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")


async def readable(fd: int, timeout: float | None = None) -> bool:
    """Until there is something to read, or an end; False after ``timeout`` seconds."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        async with asyncio.timeout(timeout):
            await ready.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)


async def writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Wait for a lock between servers and threads; the kernel lets it go when its holder dies."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def take_life_lock(path: Path) -> int:
    """A lock that goes over to the process that inherits the descriptor, and shows others that it lives."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(fd)
        raise
    return fd


def life_lock_is_held(path: Path) -> bool:
    """Asked without taking it, so that a look never gets in the way of a taker."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query))[0]
    finally:
        os.close(fd)
    return kind != fcntl.F_UNLCK
