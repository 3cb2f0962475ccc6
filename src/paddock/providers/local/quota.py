"""The disk limit where there is no disk image: look, and end the processes of a sandbox that has taken too much.

This is not a hard limit, and the isolation report says so: between two looks a sandbox can take more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from paddock import errors
from paddock.providers.base import Notice
from paddock.providers.common import disk, pressure
from paddock.providers.local import demotion, tree_size
from paddock.providers.local.handle import LocalHandle

log = structlog.get_logger(__name__)

_SECONDS = 3.0
_SHARE = 0.05
"""Of one processor, at most, for looking."""


async def keep(handle: Callable[[], Iterable[LocalHandle]], notice: Callable[[], Notice]) -> None:
    """Until cancelled."""
    while True:
        started = time.monotonic()
        for one in list(handle()):
            if one.alive() and not one.paused:
                await _look(one, notice())
        spent = time.monotonic() - started
        await asyncio.sleep(max(_SECONDS, spent / _SHARE))


async def _look(handle: LocalHandle, notice: Notice) -> None:
    spec = handle.record.spec
    limit_mb = spec.resources.disk_mb
    used = limit = limit_mb << 20
    try:
        used = await handle.folder_disk.measure(handle.folder / disk.FOLDERS)
        if used <= limit:
            return
        found = f"{used >> 20} MB are on its disk, more than the limit of {limit_mb} MB."
    except tree_size.TooDeep:
        found = "Its directories are nested too deeply to be measured: they count as more than the limit of its disk."
    except OSError as error:
        log.warning("the disk of a sandbox could not be measured", sandbox_id=spec.sandbox_id, problem=str(error))
        return
    log.warning("sandbox is over its disk limit: its processes are ended", sandbox_id=spec.sandbox_id, found=found)
    try:
        killed = await asyncio.to_thread(kill_all, handle)
    except (errors.PaddockError, OSError) as error:
        log.warning("they could not be ended", sandbox_id=spec.sandbox_id, problem=str(error))
        return
    if killed:
        message = f"{found} All its processes were killed."
        data = {"reason": "disk_limit", "used_mb": used >> 20, "limit": limit_mb, "killed": killed, "message": message}
        await notice(spec.sandbox_id, "processes.killed", data)


def kill_all(handle: LocalHandle) -> int:
    """From outside, and not only the commands that the agent knows: one that left its session writes on."""
    running = handle.record.running
    if running is None:
        return 0
    if running.group is not None and "pids" in running.group.limits:
        return pressure.kill_all_but(running.group, running.pid, handle.record.spec.resources.pids)
    return demotion.kill_below(running.pid, once=True)
