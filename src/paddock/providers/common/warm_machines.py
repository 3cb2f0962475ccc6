"""The warm machines known to this server. Claiming one is decided by the rename in :class:`SandboxDirs`, on whichever
server does it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import Resources, SandboxSpec, Shape
from paddock.providers.common.agent_handle import AgentHandle
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.removal import CleanupTasks

log = structlog.get_logger(__name__)

HandleT = TypeVar("HandleT", bound=AgentHandle)


class WarmMachines(Generic[HandleT]):
    def __init__(
        self,
        dirs: SandboxDirs,
        cleanup: CleanupTasks,
        new_handle: Callable[[Path, SandboxRecord], HandleT],
        drop: Callable[[Path, HandleT | None], Coroutine[Any, Any, None]],
    ) -> None:
        """``drop`` ends a machine that nobody uses."""
        self._dirs = dirs
        self._cleanup = cleanup
        self._new_handle = new_handle
        self._drop = drop
        self._ready: list[HandleT] = []
        self._starting: set[str] = set()
        self._following = asyncio.Lock()

    def take(self, shape: Shape) -> HandleT | None:
        for one in self._ready:
            if _shape(one) == shape:
                self._ready.remove(one)
                return one
        return None

    def machines(self) -> list[HandleT]:
        return list(self._ready)

    def counts(self) -> Mapping[Shape, int]:
        return Counter(map(_shape, self._ready))

    def drop(self, handle: HandleT) -> bool:
        """False: it is not one of these."""
        if handle not in self._ready:
            return False
        self._lost(handle)
        return True

    async def close(self) -> None:
        ready, self._ready = self._ready, []
        for handle in ready:
            await handle.detach()

    @contextlib.contextmanager
    def starting(self, draft: Path) -> Iterator[None]:
        """It is this server's until it is added."""
        self._starting.add(draft.name)
        try:
            yield
        finally:
            self._starting.discard(draft.name)

    async def add(self, folder: Path, record: SandboxRecord) -> None:
        """Raises where it cannot be used, after it has been ended."""
        handle: HandleT | None = None
        try:
            handle = self._new_handle(folder, record)
            await self._prepare(handle)
        except BaseException:
            await asyncio.shield(self._drop(folder, handle))
            raise

    async def adopt(self, folder: Path, record: SandboxRecord) -> None:
        """Made by a server before this one, or beside it. Not ended where this is cancelled: the next server finds
        it."""
        handle: HandleT | None = None
        try:
            handle = self._new_handle(folder, record)
            await self._prepare(handle)
        except (errors.PaddockError, OSError) as error:
            log.warning("a machine made in advance does not answer", problem=str(error))
            await self._drop(folder, handle)

    async def _prepare(self, handle: HandleT) -> None:
        if not handle.watch(self._lost):
            raise errors.ProviderUnavailable("A machine made in advance ended at once.")
        await handle.prepare()
        self._ready.append(handle)

    async def follow_other_servers(self) -> None:
        """What other servers on this home have made ready since, and what they have taken."""
        async with self._following:
            there = set(self._dirs.warm_names())
            taken = [one for one in self._ready if one.folder.name not in there]
            self._ready = [one for one in self._ready if one.folder.name in there]
            for handle in taken:
                await handle.detach()
            if new := there - {one.folder.name for one in self._ready} - self._starting:
                records = await asyncio.to_thread(lambda: list(self._dirs.warm()))
                for folder, record in records:
                    if folder.name in new:
                        await self.adopt(folder, record)

    def _lost(self, handle: HandleT) -> None:
        """It ended by itself and must not be handed out."""
        self._ready = [one for one in self._ready if one is not handle]
        self._cleanup.add(self._drop(handle.folder, handle))


def _shape(handle: AgentHandle) -> Shape:
    return Shape(handle.record.spec.template_id, handle.record.spec.resources.disk_mb)


def usual(disk_mb: int) -> Resources:
    """Resources of a warm machine; other limits are applied when it is handed out."""
    return Resources(disk_mb=disk_mb)


def anonymous(shape: Shape) -> SandboxSpec:
    """The spec of a machine that is started before a sandbox needs it."""
    return SandboxSpec(
        sandbox_id=f"warm_{secrets.token_hex(8)}",
        key="",
        owner_id="",
        user_id="",
        template_id=shape.template_id,
        resources=usual(shape.disk_mb),
        egress=EgressPolicy(EgressMode.NONE),
    )
