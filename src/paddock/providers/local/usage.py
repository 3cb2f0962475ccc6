"""What a sandbox uses where neither a control group nor a disk image of its own counts it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from paddock import errors
from paddock.providers.local import tree_size

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROLLUP_BUDGET_S = 0.05
"""For the kernel's walks through page tables, of one look: what is left is counted in the cheap way."""
_MAX_PROCESSES = 4096
_DISK_SHARE = 0.05
"""Of one thread, at most, for measuring one sandbox's folders for whoever asks."""


class FolderDisk:
    """How much is on a disk that is plain folders. A recent answer is as good, since the whole tree is walked."""

    def __init__(self) -> None:
        self._used: int | None = None
        self._good_until = 0.0
        self._measuring = asyncio.Lock()

    @property
    def measured(self) -> int | None:
        """As of the last look."""
        return self._used

    async def used(self, folder: Path, limit: int) -> int:
        """For metrics. Directories nested too deeply to be measured count as a full disk."""
        async with self._measuring:
            if self._used is None or time.monotonic() >= self._good_until:
                try:
                    return await self._measure(folder)
                except tree_size.TooDeep:
                    return limit
                except OSError as error:
                    raise errors.ProviderUnavailable(f"The sandbox's disk could not be measured: {error}") from error
            return self._used

    async def measure(self, folder: Path) -> int:
        """Now. Raises TooDeep or OSError."""
        async with self._measuring:
            return await self._measure(folder)

    async def _measure(self, folder: Path) -> int:
        started = time.monotonic()
        self._used = await asyncio.to_thread(tree_size.measure, folder)
        ended = time.monotonic()
        self._good_until = ended + (ended - started) / _DISK_SHARE
        return self._used


def memory_below(agent: int) -> int | None:
    """Bytes of a sandbox's processes, each page shared in equal parts among those who have it (PSS): libraries of the
    host and what forked children have in common are not counted for each. None: this kernel does not list children.
    """
    if not Path(f"/proc/{agent}/task/{agent}/children").exists():
        return None
    used = 0
    deadline = time.monotonic() + _ROLLUP_BUDGET_S
    for pid in _below(agent):
        with contextlib.suppress(OSError, ValueError, IndexError):
            used += _private(pid) if time.monotonic() > deadline else _proportional(pid)
    return used


def _below(agent: int) -> Iterator[int]:
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
