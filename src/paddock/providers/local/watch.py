"""What looks after the sandboxes of a provider while it runs: processors, processes and, where it must be, the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from paddock.providers.base import Notice, unheard
from paddock.providers.local import demotion, quota
from paddock.providers.local.guard import Guard
from paddock.providers.local.host import Host
from paddock.providers.local.living import Living


class Watch:
    def __init__(self, living: Callable[[], Iterable[Living]]) -> None:
        self.notice: Notice = unheard
        self._living = living
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, host: Host) -> None:
        if "cpu" in host.cgroups.limits:
            guard = Guard(host.cgroups, self._living, lambda: self.notice)
            self._tasks.append(asyncio.create_task(guard.keep()))
        else:
            self._tasks.append(asyncio.create_task(demotion.keep(self._living, lambda: self.notice)))
        if not host.disk_image:
            self._tasks.append(asyncio.create_task(quota.keep(self._living, lambda: self.notice)))

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
