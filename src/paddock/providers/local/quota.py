"""The disk limit where there is no disk image: look, and end the processes of a sandbox that has taken too much.

This is not a hard limit, and the isolation report says so: between two looks a sandbox can take more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from paddock import errors
from paddock.providers.base import Notice
from paddock.providers.ground import disk
from paddock.providers.local.living import Living

log = structlog.get_logger(__name__)

_SECONDS = 3.0
_SHARE = 0.05
"""Of one processor, at most, for looking."""
_BYTES_PER_FILE = 4096
"""Counted for each file, so that a flood of empty ones is one, too."""


async def keep(living: Callable[[], Iterable[Living]], notice: Callable[[], Notice]) -> None:
    """Until cancelled."""
    while True:
        started = time.monotonic()
        for one in list(living()):
            if one.alive() and not one.paused:
                await _look(one, notice())
        spent = time.monotonic() - started
        await asyncio.sleep(max(_SECONDS, spent / _SHARE))


async def _look(living: Living, notice: Notice) -> None:
    limit = living.record.spec.resources.disk_mb << 20
    used = await asyncio.to_thread(measure, living.folder / disk.FOLDERS)
    if used <= limit:
        return
    log.warning(
        "sandbox is over its disk limit: its processes are ended",
        sandbox_id=living.record.spec.sandbox_id,
        used_mb=used >> 20,
        limit_mb=limit >> 20,
    )
    killed = 0
    try:
        for process in await living.machine.processes():
            if process.running:
                await living.machine.signal(process.process_id, signal.SIGKILL)
                killed += 1
    except errors.PaddockError as error:
        log.warning("they could not be ended", sandbox_id=living.record.spec.sandbox_id, problem=error.message)
        return
    if killed:
        used_mb, limit_mb = used >> 20, limit >> 20
        message = f"{used_mb} MB are on its disk, more than the limit of {limit_mb} MB. Its commands were killed."
        data = {"reason": "disk_limit", "used_mb": used_mb, "limit": limit_mb, "killed": killed, "message": message}
        await notice(living.record.spec.sandbox_id, "processes.killed", data)


def measure(top: Path) -> int:
    """Bytes on the disk below a folder; what vanishes meanwhile does not count."""
    used = 0
    folders = [str(top)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    used += status.st_blocks * 512 + _BYTES_PER_FILE
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except (FileNotFoundError, PermissionError):
            continue
    return used
