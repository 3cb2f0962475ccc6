"""The sandboxes that this server is connected to: a handle of each, how it is adopted, and a lock for each sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from paddock import errors
from paddock.clock import Clock
from paddock.egress.addresses import PrivateAccess
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.resolve import HostResolver
from paddock.loop_turns import give_turn
from paddock.machine.base import OutputLimits
from paddock.providers.base import InsideService, MachineState
from paddock.providers.common.agent_handle import AgentHandle, HandleServices
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.common.sandbox_egress import SandboxEgress

log = structlog.get_logger(__name__)

_ADOPT_TIMEOUT_S = 10.0
"""For an agent to answer a server that starts; one that does not is adopted by its next use."""

_MAX_CONCURRENT = 32

HandleT = TypeVar("HandleT", bound=AgentHandle)
NewHandle = Callable[[Path, SandboxRecord, HandleServices], HandleT]


class SandboxLocks:
    """Each exists for as long as it is held or waited for."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def __call__(self, sandbox_id: str) -> asyncio.Lock:
        if (lock := self._locks.get(sandbox_id)) is None:
            lock = self._locks[sandbox_id] = asyncio.Lock()
        return lock


class HandleRegistry(Generic[HandleT]):
    """Whoever changes what there is of a sandbox holds its lock."""

    def __init__(
        self,
        dirs: SandboxDirs,
        clock: Clock,
        output: OutputLimits,
        reachable: Sequence[str],
        new_handle: NewHandle[HandleT],
        lost: Callable[[HandleT], None],
    ) -> None:
        """``lost`` is called with a handle whose agent has ended."""
        self.all_found = asyncio.Event()
        """Set when it is known what there is: nothing is made, ended or changed before."""
        self._locks = SandboxLocks()
        self.bandwidths = Bandwidths()
        self.inside: InsideService | None = None
        self._handles: dict[str, HandleT] = {}
        self._dirs = dirs
        self._clock = clock
        self._output = output
        self._reach = PrivateAccess(reachable=reachable)
        self._resolver = HostResolver()
        self._new_handle = new_handle
        self._lost = lost

    @contextlib.asynccontextmanager
    async def lock(self, sandbox_id: str) -> AsyncIterator[None]:
        await self.all_found.wait()
        async with self._locks(sandbox_id):
            yield

    def get(self, sandbox_id: str) -> HandleT | None:
        return self._handles.get(sandbox_id)

    def values(self) -> Collection[HandleT]:
        return self._handles.values()

    def add(self, handle: HandleT) -> HandleT | None:
        """Returns the one in whose place it is now, for the caller to detach."""
        sandbox_id = handle.record.spec.sandbox_id
        old, self._handles[sandbox_id] = self._handles.get(sandbox_id), handle
        return None if old is handle else old

    def pop(self, sandbox_id: str) -> HandleT | None:
        return self._handles.pop(sandbox_id, None)

    async def discard(self, sandbox_id: str) -> None:
        """Forget and detach it. The sandbox keeps running."""
        if (handle := self.pop(sandbox_id)) is not None:
            await handle.detach()

    async def close(self) -> None:
        handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            await handle.detach()
        self._resolver.close()

    def known(self, sandbox_id: str) -> SandboxRecord:
        record = SandboxRecord.load(self._dirs.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    def egress_of(self, record: SandboxRecord) -> SandboxEgress:
        return SandboxEgress(record.spec.egress, self._reach, self._resolver, self.bandwidths.of(record.spec.owner_id))

    def new(self, folder: Path, record: SandboxRecord) -> HandleT:
        services = HandleServices(self._clock, self.egress_of(record), self._output, self.inside)
        return self._new_handle(folder, record, services)

    async def adopt(self, record: SandboxRecord, *, paused: bool = False, answering: bool = True) -> HandleT:
        """One that runs, or is paused with its memory."""
        handle = self.new(self._dirs.folder(record.spec.sandbox_id), record)
        handle.paused = paused
        return await self.open(handle, answering=answering)

    async def open(self, handle: HandleT, *, answering: bool = True) -> HandleT:
        """``answering=False``: nothing is asked of its agent, which may not answer any more."""
        old = self.add(handle)
        try:
            if old is not None:
                await old.detach()
            if handle.watch(self._lost) and answering and not handle.paused:
                await handle.open()
        except errors.DiskFailed:
            raise  # whoever repairs disks has to find it here
        except BaseException:  # to be adopted whole by its next use
            self.pop(handle.record.spec.sandbox_id)
            await asyncio.shield(handle.detach())
            raise
        return handle

    async def find_all(
        self, records: Iterable[tuple[Path, SandboxRecord]], state_of: Callable[[SandboxRecord], MachineState | None]
    ) -> list[HandleT]:
        """Those that run, of an earlier server. Nothing is asked of their agents yet: there may be hundreds."""
        found = []
        for folder, record in records:
            await give_turn()
            try:
                if (state := state_of(record)) is None:
                    continue
                handle = self.new(folder, record)
                handle.paused = state is MachineState.PAUSED
                if not handle.watch(self._lost):
                    continue
            except (errors.PaddockError, OSError) as error:  # to be adopted by its next use
                log.warning("sandbox is not adopted yet", sandbox_id=record.spec.sandbox_id, problem=str(error))
                continue
            self.add(handle)
            found.append(handle)
        return found

    async def open_again(self, handle: HandleT) -> None:
        """The egress of one that was found."""
        sandbox_id = handle.record.spec.sandbox_id
        if handle.paused or handle.deleted:
            return
        try:
            async with asyncio.timeout(_ADOPT_TIMEOUT_S):
                await handle.open()
        except (errors.PaddockError, OSError) as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=sandbox_id, problem=str(error))
            if isinstance(error, errors.DiskFailed):
                return  # whoever repairs disks has to find it here
            if self.get(sandbox_id) is handle:  # to be adopted whole by its next use
                await self.discard(sandbox_id)


async def gather_some(work: Callable[..., Awaitable[None]], given: Iterable[tuple[Any, ...]]) -> None:
    """All of it, but not all at once."""
    places = asyncio.Semaphore(_MAX_CONCURRENT)

    async def each(arguments: tuple[Any, ...]) -> None:
        async with places:
            await work(*arguments)

    await asyncio.gather(*map(each, given))
