"""The disk limit where the storage driver has none: look, and end the processes of a sandbox that has taken too much.

This is not a hard limit, and the isolation report says so: between two looks a sandbox can take more.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable

import structlog

from paddock import errors
from paddock.providers.docker.engine import DockerEngine
from paddock.providers.docker.handle import DockerHandle

log = structlog.get_logger(__name__)

_SECONDS = 5.0
_SHARE = 0.05
"""Of the time, at most, in which the engine measures one sandbox."""


class LayerSize:
    """How large the layer of one container is. The engine walks through it, so a recent answer is as good."""

    def __init__(self, engine: DockerEngine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._used = 0
        self._good_until = 0.0

    async def __call__(self) -> int:
        started = time.monotonic()
        if started >= self._good_until:
            found = await self._engine.inspect(self._name, size=True)
            self._used = int((found or {}).get("SizeRw") or 0)
            ended = time.monotonic()
            self._good_until = ended + (ended - started) / _SHARE
        return self._used


async def keep(handle: Callable[[], Iterable[DockerHandle]]) -> None:
    """Until cancelled."""
    while True:
        for one in list(handle()):
            if one.alive() and not one.paused:
                await look(one)
        await asyncio.sleep(_SECONDS)


async def look(handle: DockerHandle) -> None:
    sandbox_id, limit = handle.record.spec.sandbox_id, handle.record.spec.resources.disk_mb << 20
    try:
        used = await handle.disk_used()
        if used <= limit:
            return
        log.warning(
            "sandbox is over its disk limit: its processes are ended",
            sandbox_id=sandbox_id,
            used_mb=used >> 20,
            limit_mb=limit >> 20,
        )
        for process in await handle.machine.processes():
            if process.running:
                await handle.machine.signal(process.process_id, signal.SIGKILL)
    except errors.PaddockError as error:
        log.warning("the disk of a sandbox could not be kept small", sandbox_id=sandbox_id, problem=error.message)
