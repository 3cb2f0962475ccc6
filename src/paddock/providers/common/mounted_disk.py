"""The disk image of a sandbox that runs, as the kernel has it mounted: how full it is, whether it has failed, and how
much of it may be used for now.

The kernel lets root change how many free blocks of an ext4 it keeps for itself (``reserved_clusters``), at any time and
at once. Whoever writes then meets ENOSPC where those begin, the sandbox's root too, and its ``df`` says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_BLOCK_DEVICES = Path("/sys/dev/block")
_FILE_SYSTEMS = Path("/sys/fs/ext4")
_KERNELS_OWN_SHARE, _KERNELS_OWN_BLOCKS = 50, 4096
"""What the kernel keeps for itself by default: a fiftieth, so many blocks at most."""


@dataclass(frozen=True, slots=True)
class MountedDisk:
    """In bytes."""

    device: str
    size: int
    backed: int
    """What the host has given to it so far."""
    free: int
    block: int

    @property
    def kernels_own(self) -> int:
        return min(self.size // _KERNELS_OWN_SHARE, _KERNELS_OWN_BLOCKS * self.block)

    @property
    def spendable(self) -> int:
        """What could be written to it, if the host has as much."""
        return max(0, self.free - self.kernels_own)

    @property
    def owed(self) -> int:
        """What is in use, and not given by the host yet: files that wait to be written, tables that are still empty."""
        return max(0, self.size - self.free - self.backed)

    def keep_back(self, amount: int) -> None:
        """So much of what is free may not be used; what is in use stays so. Nothing where the disk has gone."""
        blocks = max(0, min(amount, self.size - self.block) // self.block)
        (_FILE_SYSTEMS / self.device / "reserved_clusters").write_text(str(blocks))


def look(state: str, image: Path) -> MountedDisk:
    """``state``, a folder on it, leads there. Nothing is held open: that would keep the disk from being unmounted."""
    descriptor = os.open(state, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
        inside = os.fstatvfs(descriptor)
    finally:
        os.close(descriptor)
    file = image.stat()
    free = inside.f_bfree * inside.f_frsize
    return MountedDisk(_name(device), file.st_size, file.st_blocks * 512, free, inside.f_frsize)


def open_error_count(state: str) -> int:
    """A descriptor for :func:`has_failed`, which keeps nothing mounted."""
    device = os.stat(state).st_dev  # noqa: PTH116 - a link of the kernel's, not a path
    return os.open(_FILE_SYSTEMS / _name(device) / "errors_count", os.O_RDONLY | os.O_CLOEXEC)


def has_failed(error_count: int) -> bool:
    """Whether the file system met an error, after which it takes no more writes. False where it has gone."""
    try:
        return os.pread(error_count, 32, 0).strip() not in (b"", b"0")
    except OSError:
        return False


def _name(device: int) -> str:
    return (_BLOCK_DEVICES / f"{os.major(device)}:{os.minor(device)}").resolve().name
