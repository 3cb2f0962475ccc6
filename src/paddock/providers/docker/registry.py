"""The sandboxes that this server holds on to: how each comes to run, to stand still, and to be let go of.

Whoever calls has the sandbox's turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from paddock import errors
from paddock.clock import Clock
from paddock.egress.addresses import PrivateAccess
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.resolve import HostResolver
from paddock.machine.base import OutputLimits
from paddock.providers.base import InsideService, MachineState
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.common.sandbox_egress import SandboxEgress
from paddock.providers.docker import quota
from paddock.providers.docker.builder import FROZEN, STATES, ContainerBuilder
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.handle import DockerHandle

log = structlog.get_logger(__name__)


class HandleRegistry:
    def __init__(
        self,
        dirs: SandboxDirs,
        engine: DockerEngine,
        builder: ContainerBuilder,
        clock: Clock,
        reachable: Sequence[str],
        output: OutputLimits,
    ) -> None:
        self.handles: dict[str, DockerHandle] = {}
        self.inside: InsideService | None = None
        self.bandwidths = Bandwidths()
        self._dirs = dirs
        self._engine = engine
        self._builder = builder
        self._clock = clock
        self._reach = PrivateAccess(reachable=reachable)
        self._resolver = HostResolver()
        self._output = output

    async def close(self) -> None:
        handles, self.handles = list(self.handles.values()), {}
        for one in handles:
            await one.detach()
        self._resolver.close()

    async def find_running(self, folder: Path, record: SandboxRecord, states: Mapping[str, MachineState]) -> None:
        if (state := states.get(record.reference)) is None:
            return
        try:
            handle = self.hold(folder, record)
            handle.paused = state is MachineState.PAUSED
            await self.adopt(handle)
        except (errors.PaddockError, OSError) as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=record.spec.sandbox_id, problem=str(error))

    async def run(self, record: SandboxRecord) -> DockerHandle:
        """Running in the end, whatever it is now."""
        sandbox_id, status = record.spec.sandbox_id, await self._builder.status(record)
        if status is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        if status == FROZEN:
            with _there(sandbox_id):
                await self._engine.unpause(record.reference)
        elif STATES[status] is MachineState.PAUSED:
            return await self._restart(record)
        handle = self.handles.get(sandbox_id)
        if handle is None or not handle.alive():
            handle = self.hold(self._dirs.folder(sandbox_id), record)
        handle.paused = False
        return await self.adopt(handle)

    async def _restart(self, record: SandboxRecord) -> DockerHandle:
        """Its processes are gone (the engine or the host was stopped, or somebody ended them); its files are not."""
        folder = self._dirs.folder(record.spec.sandbox_id)
        if (old := self.handles.pop(record.spec.sandbox_id, None)) is not None:
            await old.detach()
        with _there(record.spec.sandbox_id):
            await self._builder.start(folder, record)
        return await self.adopt(self.hold(folder, record))

    async def freeze(self, record: SandboxRecord) -> None:
        try:
            with _there(record.spec.sandbox_id):
                await self._engine.pause(record.reference)
        except errors.Conflict as error:  # paused already, or it ended in this moment: paused in either case
            if await self.state(record) is not MachineState.PAUSED:
                raise errors.ProviderUnavailable(f"The engine did not pause it: {error.message}") from error
        if (handle := self.handles.get(record.spec.sandbox_id)) is not None:
            handle.paused = True

    async def halt(self, record: SandboxRecord) -> None:
        """End its processes and keep its files."""
        if (handle := self.handles.pop(record.spec.sandbox_id, None)) is not None:
            await handle.detach()
        with _there(record.spec.sandbox_id):
            await self._engine.kill(record.reference)

    async def revive(self, sandbox_id: str) -> DockerHandle:
        """For whoever wants inside: only what runs is taken up again."""
        handle = self.handles.get(sandbox_id)
        if handle is not None and handle.alive():
            return handle
        record = self.known(sandbox_id)
        if await self.state(record) is not MachineState.RUNNING:
            raise paused(sandbox_id)
        return await self.adopt(self.hold(self._dirs.folder(sandbox_id), record))

    async def adopt(self, handle: DockerHandle) -> DockerHandle:
        sandbox_id = handle.record.spec.sandbox_id
        old = self.handles.get(sandbox_id)
        self.handles[sandbox_id] = handle
        if old is not None and old is not handle:
            await old.detach()
        try:
            if handle.watch(self._lost) and not handle.paused:
                await handle.open()
        except BaseException:  # to be taken up whole by whoever asks next
            self.handles.pop(sandbox_id, None)
            await asyncio.shield(handle.detach())
            raise
        return handle

    def hold(self, folder: Path, record: SandboxRecord) -> DockerHandle:
        environment = self._builder.environment(folder)
        measure = quota.LayerSize(self._engine, record.reference)
        way = self._builder.way(folder, record)
        return DockerHandle(
            folder, record, environment, self._clock, self.egress_of(record), self._output, measure, way, self.inside
        )

    async def drop(self, folder: Path, handle: DockerHandle | None) -> None:
        """What nobody will miss. Where the engine does not answer, the next sweep removes it."""
        if handle is not None:
            await handle.detach()
        if (gone := self._dirs.discard(folder)) is not None:
            try:
                await self._builder.destroy(gone)
            except errors.PaddockError as error:
                log.warning("the remains of a sandbox could not be removed yet", problem=error.message)

    def egress_of(self, record: SandboxRecord) -> SandboxEgress:
        return SandboxEgress(record.spec.egress, self._reach, self._resolver, self.bandwidths.of(record.spec.owner_id))

    def known(self, sandbox_id: str) -> SandboxRecord:
        record = SandboxRecord.load(self._dirs.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    async def state(self, record: SandboxRecord) -> MachineState:
        state = await self._builder.state(record)
        if state is None:
            raise errors.SandboxNotFound.by_id(record.spec.sandbox_id)
        return state

    def _lost(self, handle: DockerHandle) -> None:
        if not handle.deleted:
            log.warning("sandbox ended", sandbox_id=handle.record.spec.sandbox_id)


def paused(sandbox_id: str) -> errors.Conflict:
    return errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")


@contextlib.contextmanager
def _there(sandbox_id: str) -> Iterator[None]:
    """A container that somebody else removed in this moment is a sandbox that is gone."""
    try:
        yield
    except EngineNotFound:
        raise errors.SandboxNotFound.by_id(sandbox_id) from None
