"""Monitors free disk space where this server writes: its home, its database, and its sandboxes' storage."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog

from paddock.clock import Pace
from paddock.disk_space import shortage
from paddock.errors import HostDiskFull, PaddockError
from paddock.lifecycle.provider_calls import with_timeout
from paddock.providers.base import Provider
from paddock.settings import Settings
from paddock.store.database import Store

log = structlog.get_logger(__name__)

_CHECK_INTERVAL_S = 1.0
_OWN = "the server's own"
"""Key of the server's home and database among the provider names."""


class DiskMonitor:
    def __init__(self, settings: Settings, store: Store, providers: Mapping[str, Provider]) -> None:
        self._settings = settings
        self._store = store
        self._providers = providers
        self.shortage: str | None = None
        """Why creates are refused at present, as of the last check; None if there is room."""
        self._found: dict[str, str | None] = {}
        """The same for each place, as of its last successful check."""
        self._unseen: set[str] = set()
        """Places whose last check failed."""
        self._looking = asyncio.Lock()

    def admit(self) -> None:
        """Refuse a create while free space is below the reserve."""
        if self.shortage is not None:
            raise HostDiskFull(f"{self.shortage} Delete sandboxes, or make room on the host.", retry_after=10)

    async def run(self, pace: Pace) -> None:
        while True:
            await self.look()
            if not await pace.rest(_CHECK_INTERVAL_S):
                return

    async def look(self) -> None:
        async with self._looking:  # so that no older check has the last word
            await self._update()

    async def _update(self) -> None:
        found = await self._look()
        if found != self.shortage and (found is None or self.shortage is None):
            if found is None:
                log.info("there is room on the disk again: sandboxes are made")
            else:
                log.error("there is too little room on the disk: no sandboxes are made", problem=found)
        self.shortage = found
        if found is None:
            await self._store.keep_reserve()

    async def _look(self) -> str | None:
        """Check each place separately: one that cannot be checked keeps its last result."""
        await self._look_at(_OWN, self._own)
        for name, provider in self._providers.items():
            await self._look_at(name, functools.partial(self._of_provider, provider))
        return next((short for short in self._found.values() if short is not None), None)

    async def _look_at(self, place: str, look: Callable[[], Awaitable[str | None]]) -> None:
        try:
            self._found[place] = await look()
            self._unseen.discard(place)
        except (PaddockError, OSError) as error:
            if place not in self._unseen:
                log.warning("the room on the disk cannot be looked at", place=place, problem=str(error)[:300])
            self._unseen.add(place)

    async def _own(self) -> str | None:
        folders = {self._settings.home} | ({self._store.file.parent} if self._store.file else set())
        return await asyncio.to_thread(self._of, folders)

    async def _of_provider(self, provider: Provider) -> str | None:
        storage = await with_timeout(self._settings.provider_timeout, provider.storage(), "storage")
        return None if storage is None else storage.shortage

    def _of(self, folders: set[Path]) -> str | None:
        found = (shortage(folder, self._settings.disk_reserve_mb) for folder in sorted(folders) if folder.is_dir())
        return next((short for short in found if short is not None), None)
