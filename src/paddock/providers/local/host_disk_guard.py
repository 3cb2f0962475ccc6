"""The host's disk, where sandboxes have no disk images that could be limited: the processes that fill it are killed.

An ordinary user's server has no means to refuse a write. So it looks how much is free, the more often the less that is;
when half of the reserve is used up, it kills the processes of the sandbox that has written most since the reserve was
whole. What other programs write has no such effect. Not a hard limit: a fast writer on a small disk can fill it first.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from paddock.disk_space import MIB, reserve_bytes, room
from paddock.providers.base import Notice
from paddock.providers.common import disk_limit
from paddock.providers.local import demotion
from paddock.providers.local.handle import LocalHandle

_FASTEST_BYTES_S = 2 << 30
"""So fast a disk may be filled: the next look comes before that could be felt, within the limits below."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_CPU_SHARE = 0.25
"""Of one processor, at most, for measuring folders while there is too little room."""
_WRITER_SHARE = 64
"""Who has written more than this part of the reserve is a writer."""


class HostDiskGuard:
    def __init__(
        self, root: Path, reserve_mb: int, handles: Callable[[], Iterable[LocalHandle]], notice: Callable[[], Notice]
    ) -> None:
        self._root = root
        self._reserve_mb = reserve_mb
        self._handles = handles
        self._notice = notice
        self._before: dict[str, int] = {}
        """How much each had on its disk when the reserve was whole, or when its processes were killed last."""
        self._looked_at = math.inf
        """The most that was free since nobody was found to have written, for all that was missing."""

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            pause = await self.look()
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """And how long the next one may wait."""
        started = time.monotonic()
        found = await asyncio.to_thread(room, self._root)
        reserve = reserve_bytes(found, self._reserve_mb)
        least = reserve // 2
        if found.free >= reserve:
            self._before.clear()
            self._looked_at = math.inf
            return _pause(found.free - least)
        running = {one.record.spec.sandbox_id: one for one in self._handles() if one.alive() and not one.paused}
        for sandbox_id, one in running.items():
            if sandbox_id not in self._before:
                measured = one.disk_size.measured
                self._before[sandbox_id] = await self._measure(one) if measured is None else measured
        self._looked_at = max(self._looked_at, found.free)
        if found.free >= least or found.free >= self._looked_at - MIB:
            return max(_pause(found.free - least), time.monotonic() - started)
        if not await self._end_writer(running, max(MIB, reserve // _WRITER_SHARE), found.free, reserve):
            self._looked_at = found.free
        return max(_SHORTEST_PAUSE_S, (time.monotonic() - started) / _CPU_SHARE)

    async def _end_writer(self, running: dict[str, LocalHandle], least: int, free: int, reserve: int) -> bool:
        """Of whoever has written most. False: nobody has."""
        used = dict(zip(running, await asyncio.gather(*map(self._measure, running.values())), strict=True))
        written = {sandbox_id: used[sandbox_id] - self._before.get(sandbox_id, 0) for sandbox_id in used}
        sandbox_id = max(written, key=written.__getitem__, default=None)
        if sandbox_id is None or written[sandbox_id] < least:
            return False
        self._before[sandbox_id] = used[sandbox_id]
        found = (
            f"Only {free // MIB} MB of the {reserve // MIB} MB that are to stay free are left on the host's disk, and "
            f"this sandbox had just written {written[sandbox_id] // MIB} MB."
        )
        await disk_limit.kill_processes(
            running[sandbox_id],
            demotion.kill_from_outside,
            self._notice(),
            found,
            remedy=" Delete files, or make room on the host.",
            reason="host_disk_full",
            written_mb=written[sandbox_id] // MIB,
            free_mb=free // MIB,
        )
        return True

    async def _measure(self, handle: LocalHandle) -> int:
        """One that cannot be measured is left to its own limit."""
        try:
            return await handle.disk_size.now()
        except (disk_limit.TooDeep, OSError):
            return 0


def _pause(headroom: int) -> float:
    return min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, headroom / _FASTEST_BYTES_S))
