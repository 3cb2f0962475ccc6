"""What a sandbox uses where neither a control group nor a disk image of its own counts it.

The directories of its disk may be of any depth, and without permissions.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from paddock.providers.common.disk_limit import TooDeep

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROLLUP_BUDGET_S = 0.05
"""For the kernel's walks through page tables, of one look: what is left is counted in the cheap way."""
_MAX_PROCESSES = 4096
_BYTES_PER_FILE = 4096
"""Counted for each file, so that a flood of empty ones is one, too."""
_LONGEST_PATH = 2048
_MOST_LEVELS = 64
"""So often is a new start made at a directory, because the path there is long or because it is shut."""
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAY_LIST = stat.S_IRUSR | stat.S_IXUSR


def memory_below(agent: int) -> int | None:
    """Bytes of a sandbox's processes, each page shared in equal parts among those who have it (PSS): libraries of the
    host and what forked children have in common are not counted for each. None: this kernel does not list children.
    """
    if not Path(f"/proc/{agent}/task/{agent}/children").exists():
        return None
    used = 0
    deadline = time.monotonic() + _ROLLUP_BUDGET_S
    for pid in _processes_below(agent):
        with contextlib.suppress(OSError, ValueError, IndexError):
            used += _private(pid) if time.monotonic() > deadline else _proportional(pid)
    return used


def _processes_below(agent: int) -> Iterator[int]:
    """Whatever loses its parent in a sandbox becomes its agent's child, so the way down leads everywhere."""
    seen = {agent}
    left = [agent]
    while left and len(seen) < _MAX_PROCESSES:
        found: list[int] = []
        with contextlib.suppress(OSError):
            pid = left.pop()
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - one small look of many
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        for child in found:
            if child not in seen:
                seen.add(child)
                left.append(child)
                yield child


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (PermissionError, FileNotFoundError):
        return _private(pid)
    kilobytes = next((line.split()[1] for line in text.splitlines() if line.startswith("Pss:")), "0")
    return int(kilobytes) << 10


def _private(pid: int) -> int:
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return max(0, int(resident) - int(shared)) * _PAGE


def tree_size(top: Path) -> int:
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
