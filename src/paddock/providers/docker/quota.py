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
from paddock.providers.docker.engine import Engine
from paddock.providers.docker.living import Living

log = structlog.get_logger(__name__)

_SECONDS = 5.0
_SHARE = 0.05
"""Of the time, at most, with the engine busy measuring."""


async def keep(engine: Engine, living: Callable[[], Iterable[Living]]) -> None:
    """Until cancelled."""
    while True:
        started = time.monotonic()
        for one in list(living()):
            if one.alive() and not one.paused:
                await look(engine, one)
        await asyncio.sleep(max(_SECONDS, (time.monotonic() - started) / _SHARE))


async def look(engine: Engine, living: Living) -> None:
    sandbox_id, limit = living.record.spec.sandbox_id, living.record.spec.resources.disk_mb << 20
    try:
        found = await engine.inspect(living.record.reference, size=True)
        living.disk_used = int((found or {}).get("SizeRw") or 0)
        if living.disk_used <= limit:
            return
        log.warning(
            "sandbox is over its disk limit: its processes are ended",
            sandbox_id=sandbox_id,
            used_mb=living.disk_used >> 20,
            limit_mb=limit >> 20,
        )
        for process in await living.machine.processes():
            if process.running:
                await living.machine.signal(process.process_id, signal.SIGKILL)
    except errors.PaddockError as error:
        log.warning("the disk of a sandbox could not be kept small", sandbox_id=sandbox_id, problem=error.message)
