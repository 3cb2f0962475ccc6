"""The disk limit where nothing enforces it: measures, and kills the processes of a sandbox that has taken too much.

This is not a hard limit, and the isolation report says so: between two measurements a sandbox can take more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

import structlog

from paddock import errors
from paddock.providers.base import Notice
from paddock.providers.common.record import SandboxRecord

log = structlog.get_logger(__name__)

_INTERVAL_S = 3.0
_SHARE = 0.05
"""Of the time, at most, for measuring."""


class TooDeep(Exception):
    """Directories nested deeper than any program makes them, to evade the measurement: they count as a full disk."""


class DiskSize:
    """How much a sandbox has on its disk. A recent answer is as good for metrics, since all of it is walked through."""

    def __init__(self, measure: Callable[[], Awaitable[int]]) -> None:
        self._measure = measure
        self._good_until = 0.0
        self._measuring = asyncio.Lock()
        self.measured: int | None = None
        """The last answer."""

    async def recent(self) -> int:
        async with self._measuring:
            if self.measured is None or time.monotonic() >= self._good_until:
                return await self._now()
            return self.measured

    async def now(self) -> int:
        async with self._measuring:
            return await self._now()

    async def _now(self) -> int:
        started = time.monotonic()
        self.measured = await self._measure()
        ended = time.monotonic()
        self._good_until = ended + (ended - started) / _SHARE
        return self.measured


class Limited(Protocol):
    """A handle whose sandbox has no hard disk limit."""

    record: SandboxRecord
    paused: bool
    disk_size: DiskSize

    def alive(self) -> bool: ...


HandleT = TypeVar("HandleT", bound=Limited)
Kill = Callable[[HandleT], Awaitable[int]]
"""Kills all processes of a sandbox but its agent, and returns how many there were."""


async def keep(handles: Callable[[], Iterable[HandleT]], kill: Kill[HandleT], notice: Callable[[], Notice]) -> None:
    """Until cancelled."""
    while True:
        started = time.monotonic()
        for one in list(handles()):
            if one.alive() and not one.paused:
                await enforce(one, kill, notice())
        await asyncio.sleep(max(_INTERVAL_S, (time.monotonic() - started) / _SHARE))


async def enforce(handle: HandleT, kill: Kill[HandleT], notice: Notice) -> None:
    spec = handle.record.spec
    limit_mb = spec.resources.disk_mb
    used = limit = limit_mb << 20
    try:
        used = await handle.disk_size.now()
        if used <= limit:
            return
        found = f"{used >> 20} MB are on its disk, more than the limit of {limit_mb} MB."
    except TooDeep:
        found = "Its directories are nested too deeply to be measured: they count as more than the limit of its disk."
    except (errors.PaddockError, OSError) as error:
        log.warning("the disk of a sandbox could not be measured", sandbox_id=spec.sandbox_id, problem=str(error))
        return
    await kill_processes(handle, kill, notice, found, reason="disk_limit", used_mb=used >> 20, limit=limit_mb)


async def kill_processes(
    handle: HandleT, kill: Kill[HandleT], notice: Notice, found: str, *, remedy: str = "", **data: Any
) -> None:
    """And tell why: ``found`` is what was found, ``data`` what the event has besides."""
    sandbox_id = handle.record.spec.sandbox_id
    log.warning("the processes of a sandbox are killed", sandbox_id=sandbox_id, found=found)
    try:
        killed = await kill(handle)
    except (errors.PaddockError, OSError) as error:
        log.warning("they could not be killed", sandbox_id=sandbox_id, problem=str(error))
        return
    if killed:
        message = f"{found} All its processes were killed.{remedy}"
        await notice(sandbox_id, "processes.killed", {**data, "killed": killed, "message": message})
