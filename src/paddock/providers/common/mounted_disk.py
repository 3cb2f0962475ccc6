"""The mounted disk image of a running sandbox: how full it is, whether it has failed, and how much of it may be used.

The kernel lets root change the number of reserved free blocks of an ext4 (``reserved_clusters``) at any time, with
immediate effect. Writers then get ENOSPC at that limit, the sandbox's root included, and its ``df`` shows it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_BLOCK_DEVICES = Path("/sys/dev/block")
_FILE_SYSTEMS = Path("/sys/fs/ext4")
_KERNEL_RESERVE_SHARE, _KERNEL_RESERVE_BLOCKS = 50, 4096
"""The kernel's default reserve: a fiftieth, at most this many blocks."""


@dataclass(frozen=True, slots=True)
class MountedDisk:
    """Sizes in bytes."""

    device: str
    size: int
    backed: int
    """Blocks that the host has allocated to the image so far."""
    free: int
    block: int

    @property
    def kernels_own(self) -> int:
        return min(self.size // _KERNEL_RESERVE_SHARE, _KERNEL_RESERVE_BLOCKS * self.block)

    @property
    def spendable(self) -> int:
        """How much could be written to it, if the host has enough space."""
        return max(0, self.free - self.kernels_own)

    @property
    def owed(self) -> int:
        """Used but not yet allocated on the host: delayed writes, and tables that are still empty."""
        return max(0, self.size - self.free - self.backed)

    def keep_back(self, amount: int) -> None:
        """Reserve this much of the free space; used space is unaffected. Raises OSError if the disk is gone."""
        blocks = max(0, min(amount, self.size - self.block) // self.block)
        (_FILE_SYSTEMS / self.device / "reserved_clusters").write_text(str(blocks))


def look(state: str, image: Path) -> MountedDisk:
    """``state`` is a directory on the disk. No descriptor is kept open, which would prevent the unmount."""
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
    """A descriptor for :func:`has_failed` that does not prevent the unmount."""
    device = os.stat(state).st_dev  # noqa: PTH116 - a link of the kernel's, not a path
    return os.open(_FILE_SYSTEMS / _name(device) / "errors_count", os.O_RDONLY | os.O_CLOEXEC)


def has_failed(error_count: int) -> bool:
    """Whether the file system had an error, after which it is read-only. False if it is gone."""
    try:
        return os.pread(error_count, 32, 0).strip() not in (b"", b"0")
    except OSError:
        return False


def _name(device: int) -> str:
    return (_BLOCK_DEVICES / f"{os.major(device)}:{os.minor(device)}").resolve().name
