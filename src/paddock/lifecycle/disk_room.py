"""Whether the disks that this server writes to have room: under its home, its database, and its sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from paddock.clock import Pace
from paddock.disk_space import shortage
from paddock.errors import HostDiskFull, PaddockError
from paddock.lifecycle.within import within
from paddock.providers.base import Provider
from paddock.settings import Settings
from paddock.store.database import Store

log = structlog.get_logger(__name__)

_LOOK_S = 1.0


class DiskRoom:
    def __init__(self, settings: Settings, store: Store, providers: Mapping[str, Provider]) -> None:
        self._settings = settings
        self._store = store
        self._providers = providers
        self.shortage: str | None = None
        """Why no sandbox is made now, as of the last look."""

    def admit(self) -> None:
        """Refuse a create while there is less room than is to stay free."""
        if self.shortage is not None:
            raise HostDiskFull(f"{self.shortage} Delete sandboxes, or make room on the host.", retry_after=10)

    async def run(self, pace: Pace) -> None:
        while True:
            await self.look()
            if not await pace.rest(_LOOK_S):
                return

    async def look(self) -> None:
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
        folders = {self._settings.home} | ({self._store.file.parent} if self._store.file else set())
        try:
            if (found := await asyncio.to_thread(self._of, folders)) is not None:
                return found
            for provider in self._providers.values():
                storage = await within(self._settings.provider_timeout, provider.storage(), "storage")
                if storage is not None and storage.shortage is not None:
                    return storage.shortage
        except (PaddockError, OSError) as error:
            log.warning("the room on the disk cannot be looked at", problem=str(error)[:300])
        return None

    def _of(self, folders: set[Path]) -> str | None:
        found = (shortage(folder, self._settings.disk_reserve_mb) for folder in sorted(folders) if folder.is_dir())
        return next((short for short in found if short is not None), None)
