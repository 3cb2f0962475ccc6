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
from paddock.egress.addresses import Reach
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.resolve import HostResolver
from paddock.machine.base import OutputLimits
from paddock.providers.base import InsideService, MachineState
from paddock.providers.docker import quota
from paddock.providers.docker.builder import FROZEN, STATES, Builder
from paddock.providers.docker.engine import Engine, Missing
from paddock.providers.docker.living import Living
from paddock.providers.ground.outlet import Outlet
from paddock.providers.ground.record import Record
from paddock.providers.ground.yard import Yard

log = structlog.get_logger(__name__)


class Lives:
    def __init__(
        self, yard: Yard, engine: Engine, builder: Builder, clock: Clock, reachable: Sequence[str], output: OutputLimits
    ) -> None:
        self.living: dict[str, Living] = {}
        self.inside: InsideService | None = None
        self.bandwidths = Bandwidths()
        self._yard = yard
        self._engine = engine
        self._builder = builder
        self._clock = clock
        self._reach = Reach(reachable=reachable)
        self._resolver = HostResolver()
        self._output = output

    async def close(self) -> None:
        living, self.living = list(self.living.values()), {}
        for one in living:
            await one.let_go()
        self._resolver.close()

    async def find_again(self, folder: Path, record: Record, states: Mapping[str, MachineState]) -> None:
        if (state := states.get(record.reference)) is None:
            return
        try:
            living = self.hold(folder, record)
            living.paused = state is MachineState.PAUSED
            await self.take_up(living)
        except (errors.PaddockError, OSError) as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=record.spec.sandbox_id, problem=str(error))

    async def run(self, record: Record) -> Living:
        """Running in the end, whatever it is now."""
        sandbox_id, status = record.spec.sandbox_id, await self._builder.status(record)
        if status is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        if status == FROZEN:
            with _there(sandbox_id):
                await self._engine.unpause(record.reference)
        elif STATES[status] is MachineState.PAUSED:
            return await self._restart(record)
        living = self.living.get(sandbox_id)
        if living is None or not living.alive():
            living = self.hold(self._yard.folder(sandbox_id), record)
        living.paused = False
        return await self.take_up(living)

    async def _restart(self, record: Record) -> Living:
        """Its processes are gone (the engine or the host was stopped, or somebody ended them); its files are not."""
        folder = self._yard.folder(record.spec.sandbox_id)
        if (old := self.living.pop(record.spec.sandbox_id, None)) is not None:
            await old.let_go()
        with _there(record.spec.sandbox_id):
            await self._builder.start(folder, record)
        return await self.take_up(self.hold(folder, record))

    async def freeze(self, record: Record) -> None:
        try:
            with _there(record.spec.sandbox_id):
                await self._engine.pause(record.reference)
        except errors.Conflict as error:  # paused already, or it ended in this moment: paused in either case
            if await self.state(record) is not MachineState.PAUSED:
                raise errors.ProviderUnavailable(f"The engine did not pause it: {error.message}") from error
        if (living := self.living.get(record.spec.sandbox_id)) is not None:
            living.paused = True

    async def halt(self, record: Record) -> None:
        """End its processes and keep its files."""
        if (living := self.living.pop(record.spec.sandbox_id, None)) is not None:
            await living.let_go()
        with _there(record.spec.sandbox_id):
            await self._engine.kill(record.reference)

    async def revive(self, sandbox_id: str) -> Living:
        """For whoever wants inside: only what runs is taken up again."""
        living = self.living.get(sandbox_id)
        if living is not None and living.alive():
            return living
        record = self.known(sandbox_id)
        if await self.state(record) is not MachineState.RUNNING:
            raise paused(sandbox_id)
        return await self.take_up(self.hold(self._yard.folder(sandbox_id), record))

    async def take_up(self, living: Living) -> Living:
        sandbox_id = living.record.spec.sandbox_id
        old = self.living.get(sandbox_id)
        self.living[sandbox_id] = living
        if old is not None and old is not living:
            await old.let_go()
        try:
            if living.watch(self._lost) and not living.paused:
                await living.open()
        except BaseException:  # to be taken up whole by whoever asks next
            self.living.pop(sandbox_id, None)
            await asyncio.shield(living.let_go())
            raise
        return living

    def hold(self, folder: Path, record: Record) -> Living:
        environment = self._builder.environment(folder)
        measure = quota.Measure(self._engine, record.reference)
        way = self._builder.way(folder, record)
        return Living(
            folder, record, environment, self._clock, self.outlet(record), self._output, measure, way, self.inside
        )

    async def drop(self, folder: Path, living: Living | None) -> None:
        """What nobody will miss. Where the engine does not answer, the next sweep removes it."""
        if living is not None:
            await living.let_go()
        if (gone := self._yard.discard(folder)) is not None:
            try:
                await self._builder.destroy(gone)
            except errors.PaddockError as error:
                log.warning("the remains of a sandbox could not be removed yet", problem=error.message)

    def outlet(self, record: Record) -> Outlet:
        return Outlet(record.spec.egress, self._reach, self._resolver, self.bandwidths.of(record.spec.owner_id))

    def known(self, sandbox_id: str) -> Record:
        record = Record.load(self._yard.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    async def state(self, record: Record) -> MachineState:
        state = await self._builder.state(record)
        if state is None:
            raise errors.SandboxNotFound.by_id(record.spec.sandbox_id)
        return state

    def _lost(self, living: Living) -> None:
        if not living.deleted:
            log.warning("sandbox ended", sandbox_id=living.record.spec.sandbox_id)


def paused(sandbox_id: str) -> errors.Conflict:
    return errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")


@contextlib.contextmanager
def _there(sandbox_id: str) -> Iterator[None]:
    """A container that somebody else removed in this moment is a sandbox that is gone."""
    try:
        yield
    except Missing:
        raise errors.SandboxNotFound.by_id(sandbox_id) from None
