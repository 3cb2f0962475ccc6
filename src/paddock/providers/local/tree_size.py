"""How much a sandbox has on its disk, where that is plain folders: of any depth, and with directories that are shut."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_BYTES_PER_FILE = 4096
"""Counted for each file, so that a flood of empty ones is one, too."""
_LONGEST_PATH = 2048
_MOST_LEVELS = 64
"""So often is a new start made at a directory, because the path there is long or because it is shut."""
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAY_LIST = stat.S_IRUSR | stat.S_IXUSR


class TooDeep(Exception):
    """No program makes directories like that, so whoever does has something to hide."""


def measure(top: Path) -> int:
    """Bytes on the disk below a folder; what vanishes meanwhile does not count. Raises TooDeep."""
    try:
        place = os.open(top, os.O_RDONLY | _DIRECTORY)
    except FileNotFoundError:
        return 0
    try:
        return _below(place, 0)
    finally:
        os.close(place)


def _below(place: int, level: int) -> int:
    if level > _MOST_LEVELS:
        raise TooDeep
    used = 0
    folders = ["."]
    while folders:
        path = folders.pop()
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError),
            _opened(path, place) as opened,
        ):
            folder, was_shut = opened
            if was_shut or len(path) > _LONGEST_PATH:
                used += _below(folder, level + 1)
                continue
            bytes_here, names = _in(folder)
            used += bytes_here
            folders += [f"{path}/{name}" for name in names]
    return used


def _in(folder: int) -> tuple[int, list[str]]:
    """Bytes of what is in a directory, and the names of the directories there."""
    used = 0
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                used += entry.stat(follow_symlinks=False).st_blocks * 512 + _BYTES_PER_FILE
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
    return used, names


@contextlib.contextmanager
def _opened(path: str, place: int) -> Iterator[tuple[int, bool]]:
    """A directory, and whether it was shut: the sandbox's root can write into it all the same, so it is looked into.

    Its mode is changed below the overlay, which shows the one that it knows: nobody inside sees that.
    """
    with contextlib.ExitStack() as ending:
        try:
            folder, was_shut = os.open(path, os.O_RDONLY | _DIRECTORY, dir_fd=place), False
        except PermissionError:
            named = _named(path, place)
            ending.callback(os.close, named)
            mode, reached = stat.S_IMODE(os.fstat(named).st_mode), f"/proc/self/fd/{named}"
            os.chmod(reached, mode | _MAY_LIST)  # noqa: PTH101 - of the descriptor, whatever its name is
            ending.callback(os.chmod, reached, mode)
            folder, was_shut = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=named), True
        ending.callback(os.close, folder)
        yield folder, was_shut


def _named(path: str, place: int) -> int:
    """Step by step: what lies on the way may have become a link that leads out of the sandbox."""
    at = os.open(".", os.O_PATH | _DIRECTORY, dir_fd=place)
    for name in path.split("/"):
        try:
            below = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
