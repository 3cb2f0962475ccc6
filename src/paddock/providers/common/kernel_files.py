"""Kernel files that contain a number, or named numbers: cgroup files, and counters of the machine."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

from paddock import errors

_READ_BYTES = 4096


class KernelFile:
    """A frequently read file that is kept open, because opening costs more than reading."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self) -> bytes:
        return os.pread(self._descriptor, _READ_BYTES, 0)


def write_value(path: Path, text: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise errors.ProviderUnavailable(f"The kernel refused {text!r} for {path.name}: {error.strerror}.") from error


def read_number(path: Path) -> int:
    """0 if the group has been removed."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def read_field(path: Path, name: str) -> int:
    """0 if the group has been removed, or the kernel does not have this counter."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
