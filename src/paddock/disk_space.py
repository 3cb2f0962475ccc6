"""Room on a file system, and a file that holds some of it back for the moments when nothing else is left."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
_RESERVE_SHARE = 0.05
_MAX_RESERVE_BYTES = 1 << 30
_MIN_FREE_INODES = 1000
_INODE_SHARE = 0.05
_RESERVE_FILE_BYTES = 16 << 20
_RESERVE_FILE_SHARE = 64
"""A reserve file is this part of its file system at most."""


@dataclass(frozen=True, slots=True)
class Room:
    """In bytes. ``inodes`` is 0 where the file system does not count them."""

    total: int
    free: int
    inodes: int
    free_inodes: int


def room(path: Path) -> Room:
    """Of the file system that this is on, for programs without special rights."""
    status = os.statvfs(path)
    size = status.f_frsize
    return Room(status.f_blocks * size, status.f_bavail * size, status.f_files, status.f_favail)


def reserve_bytes(found: Room, reserve_mb: int) -> int:
    """What is to stay free: as the operator says, or a twentieth of it and 1 GiB at most."""
    return reserve_mb * MIB if reserve_mb else min(int(found.total * _RESERVE_SHARE), _MAX_RESERVE_BYTES)


def shortage(path: Path, reserve_mb: int) -> str | None:
    """A sentence where there is less room than is to stay free; None where there is enough."""
    found = room(path)
    reserve = reserve_bytes(found, reserve_mb)
    if found.free < reserve:
        return (
            f"Only {found.free // MIB} MB are free on the host's disk under {path}, and {reserve // MIB} MB are to "
            "stay free (PADDOCK_DISK_RESERVE_MB)."
        )
    least = min(_MIN_FREE_INODES, int(found.inodes * _INODE_SHARE))
    if found.inodes and found.free_inodes < least:
        return f"Only {found.free_inodes} inodes are free on the host's disk under {path}, {least} are to stay free."
    return None


class ReserveFile:
    """Blocks that belong to a file of no content, which is removed when somebody needs them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self.held = False

    def release(self) -> bool:
        """Whether something was given up."""
        if not self.held:
            return False
        self._path.unlink(missing_ok=True)
        self.held = False
        return True

    def hold(self) -> bool:
        """Take the blocks, unless that would leave too little. Blocking; may be repeated at any time."""
        if self.held:
            return True
        found = room(self._path.parent)
        self._size = min(_RESERVE_FILE_BYTES, found.total // _RESERVE_FILE_SHARE)
        there = self._path.stat().st_blocks * 512 if self._path.exists() else 0
        if found.free + there < 3 * self._size:
            self._path.unlink(missing_ok=True)  # of a server before this one: what it held is needed
            return False
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            return False
        self.held = True
        return True
