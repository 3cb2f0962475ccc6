"""What looks after the sandboxes of a provider while it runs: processors, processes and, where it must be, the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

import structlog

from paddock.machine.threads import in_thread
from paddock.providers.base import Notice
from paddock.providers.common import disk_limit
from paddock.providers.local import demotion
from paddock.providers.local.cpu_guard import CpuGuard
from paddock.providers.local.handle import LocalHandle
from paddock.providers.local.host import HostCapabilities
from paddock.providers.local.host_disk_guard import HostDiskGuard
from paddock.providers.local.templates import LocalTemplates

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 1.0
_OOM_LOOK_S = 2.0
_OOM_LOOK_SHARE = 0.005
"""Of one processor, at most, for counting who was killed by the OOM killer."""
_HIDE_SECONDS = 60.0
_HIDE_SHARE = 0.01
"""Of one processor, at most, for looking for files of the host that sandboxes must not see."""


class SandboxMonitor:
    def __init__(
        self, root: Path, reserve_mb: int, handles: Callable[[], Iterable[LocalHandle]], notice: Callable[[], Notice]
    ) -> None:
        """``reserve_mb`` stay free on the host's disk under ``root``, as far as that can be had."""
        self._root = root
        self._reserve_mb = reserve_mb
        self._handles = handles
        self._notice = notice
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self, host: HostCapabilities, templates: LocalTemplates, keep_space: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        if host.privileged:
            self._begin(lambda: _hide_private_files(templates))
        if "cpu" in host.cgroups.limits:
            cpu_guard = CpuGuard(host.cgroups, self._handles, self._notice)
            self._begin(cpu_guard.keep)
        else:
            self._begin(lambda: demotion.keep(self._handles, self._notice))
        self._begin(keep_space)
        if "memory" in host.cgroups.limits:
            self._begin(lambda: _count_oom_kills(self._handles))
        if not host.disk_image:
            self._begin(lambda: disk_limit.keep(self._handles, demotion.kill_from_outside, self._notice))
            disk_guard = HostDiskGuard(self._root, self._reserve_mb, self._handles, self._notice)
            self._begin(disk_guard.keep)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, keep: Callable[[], Coroutine[None, None, None]]) -> None:
        self._tasks.append(asyncio.create_task(_keep_on(keep)))


async def _hide_private_files(templates: LocalTemplates) -> None:
    """The first time is before the first sandbox, and not here."""
    spent = 0.0
    while True:
        await asyncio.sleep(max(_HIDE_SECONDS, spent / _HIDE_SHARE))
        started = time.monotonic()
        await in_thread(templates.hide_private_files)
        spent = time.monotonic() - started


async def _count_oom_kills(handles: Callable[[], Iterable[LocalHandle]]) -> None:
    """An agent that is killed after one of its processes died by the OOM killer an hour ago was killed, no more."""

    def count(present: Iterable[LocalHandle]) -> float:
        started = time.thread_time()
        for one in present:
            one.count_oom_kills()
        return time.thread_time() - started

    spent = 0.0
    while True:
        await asyncio.sleep(max(_OOM_LOOK_S, spent / _OOM_LOOK_SHARE))
        present = [one for one in handles() if one.record.running is not None and not one.paused]
        spent = await asyncio.to_thread(count, present)


async def _keep_on(keep: Callable[[], Coroutine[None, None, None]]) -> None:
    """Whatever one sandbox did to it, the others are looked after."""
    while True:
        try:
            await keep()
            return
        except Exception:
            log.exception("what looks after the sandboxes failed, and begins anew")
            await asyncio.sleep(_AGAIN_SECONDS)
