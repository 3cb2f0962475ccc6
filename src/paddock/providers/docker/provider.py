"""The Docker provider: sandboxes in containers of an engine on this machine. Every step is safe to repeat.

Who a container is stands in the folder of its sandbox; whether it runs is asked of the engine, never remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import structlog

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.addresses import Reach
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.egress.resolve import HostResolver
from paddock.machine.agent.machine import SPOOL_LIMIT
from paddock.machine.base import Machine
from paddock.providers.base import Found, IsolationReport, MachineState, Provider, SandboxSpec, Shape
from paddock.providers.docker import container, quota
from paddock.providers.docker.address import Address
from paddock.providers.docker.builder import PREFIX, Builder
from paddock.providers.docker.engine import Engine, Missing
from paddock.providers.docker.images import Images
from paddock.providers.docker.living import Living
from paddock.providers.local import disk
from paddock.providers.local.builder import usual
from paddock.providers.local.chores import Chores
from paddock.providers.local.outlet import Outlet
from paddock.providers.local.record import Record
from paddock.providers.local.stock import Stock
from paddock.providers.local.yard import AlreadyThere, Yard
from paddock.settings import Settings

log = structlog.get_logger(__name__)


class DockerProvider(Provider):
    name = "docker"

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        *,
        address: Address,
        images: Sequence[str],
        any_image: bool = False,
        pull: bool = False,
        runtime: str = "",
        read_only: bool = False,
        reachable: Sequence[str] = (),
        spool_limit: int = SPOOL_LIMIT,
    ) -> None:
        self._clock = clock or SystemClock()
        self._spool_limit = spool_limit
        self._reach = Reach(reachable=reachable)
        self._resolver = HostResolver()
        self._engine = Engine(address)
        self._images = Images(self._engine, images, any_local=any_image, pull=pull)
        self._yard = Yard(root.absolute())
        self._builder = Builder(self._yard, self._engine, self._images, runtime=runtime, read_only=read_only)
        self._stock: Stock[Living] = Stock()
        self._living: dict[str, Living] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._chores = Chores()
        self._quota: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> Self:
        return cls(
            settings.home / "docker",
            clock,
            address=Address.parse(settings.docker_host),
            images=settings.docker_images,
            any_image=settings.docker_any_image,
            pull=settings.docker_pull,
            runtime=settings.docker_runtime,
            read_only=settings.docker_read_only,
            reachable=settings.egress_reachable,
        )

    async def start(self) -> None:
        """Look at the engine, finish what a crash cut short, and take up every sandbox that lives."""
        await self._builder.prepare()
        states = await self._builder.states()
        await self._builder.sweep(set(states))
        records = await asyncio.to_thread(lambda: list(self._yard.sandboxes()))
        await asyncio.gather(*(self._find_again(folder, record, states) for folder, record in records))
        for folder, record in await asyncio.to_thread(lambda: list(self._yard.warm())):
            await self._restock(folder, record)
        self._quota = asyncio.create_task(quota.keep(self._engine, self._living.values))

    async def close(self) -> None:
        if self._quota is not None:
            self._quota.cancel()
            await asyncio.wait([self._quota])
        living, self._living = list(self._living.values()), {}
        for one in (*living, *self._stock.clear()):
            await one.let_go()
        await self._chores.finish()
        await self._images.close()
        self._resolver.close()
        self._builder.close()
        await self._engine.close()

    async def templates(self) -> list[str]:
        return await self._images.names()

    async def create(self, spec: SandboxSpec) -> Found:
        async with self._turn(spec.sandbox_id):
            record = Record.load(self._yard.folder(spec.sandbox_id))
            if record is not None and (living := await self._again(record)) is not None:
                return _found(living.record, MachineState.RUNNING)
            await self._builder.require(spec)
            living = await self._claim(spec) or await self._make(spec)
            return _found(living.record, MachineState.RUNNING)

    async def inspect(self, sandbox_id: str) -> Found | None:
        try:
            record = Record.load(self._yard.folder(sandbox_id))
        except errors.SandboxNotFound:
            return None
        if record is None or (state := await self._builder.state(record)) is None:
            return None
        return _found(record, state)

    async def list(self) -> list[Found]:
        states = await self._builder.states()
        records = await asyncio.to_thread(lambda: [record for _, record in self._yard.sandboxes()])
        self._chores.add(self._builder.sweep(set(states)))
        found = [(record, states.get(record.reference)) for record in records]
        # One that was made after the engine was asked is not gone.
        late = {record.reference: await self._builder.state(record) for record, state in found if state is None}
        whole = [(record, state or late[record.reference]) for record, state in found]
        return [_found(record, state) for record, state in whole if state is not None]

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._turn(sandbox_id):
            record = self._known(sandbox_id)
            state = await self._state(record)
            if not keep_memory:
                await self._halt(record)
            elif state is MachineState.RUNNING:
                await self._freeze(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._turn(sandbox_id):
            await self._run(self._known(sandbox_id))

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._yard.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        async with self._turn(sandbox_id):
            if (living := self._living.pop(sandbox_id, None)) is not None:
                living.deleted = True
                await living.let_go()
            # The container first: while the engine cannot say that it is gone, the folder says whose it is.
            if (record := Record.load(folder)) is not None:
                await self._builder.end(record)
            await self._discard(folder)
        self._turns.pop(sandbox_id, None)

    async def attach(self, sandbox_id: str) -> Machine:
        living = self._living.get(sandbox_id)
        if living is None or not living.alive():
            living = await self._revive(sandbox_id)
        if living.paused:
            raise _paused(sandbox_id)
        return living.machine

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        self._known(sandbox_id)
        return self._builder.host.report()

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        async with self._turn(sandbox_id):
            record = self._known(sandbox_id)
            if policy.mode is not record.spec.egress.mode:
                raise errors.Invalid("The egress mode of a sandbox is chosen when it is made.")
            changed = record.with_spec(egress=policy)
            await asyncio.to_thread(changed.save, self._yard.folder(sandbox_id))
            if (living := self._living.get(sandbox_id)) is not None:
                living.record = changed
                living.outlet.update(policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        record = self._known(sandbox_id)
        living = self._living.get(sandbox_id)
        return living.outlet.report() if living else self._outlet(record).report()

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        if spec.mounts or spec.egress.mode is EgressMode.FULL:
            return None
        return Shape(spec.template_id, spec.resources.disk_mb)

    async def warm(self, shape: Shape) -> None:
        spec = SandboxSpec(
            sandbox_id=f"warm_{secrets.token_hex(8)}",
            key="",
            owner_id="",
            user_id="",
            template_id=shape.template_id,
            resources=usual(shape.disk_mb),
            egress=EgressPolicy(EgressMode.NONE),
        )
        await self._builder.require(spec)
        draft, record = await self._built(spec)
        try:
            folder = self._yard.put_warm(draft)
            living = await self._hold(folder, record)
        except BaseException:
            await asyncio.shield(self._drop(draft if draft.exists() else self._yard.root / "warm" / draft.name, None))
            raise
        try:
            if not living.watch(self._warm_lost):
                raise errors.ProviderUnavailable("A machine made in advance ended at once.")
            await living.machine.usage()  # the link stands, and the agent answers
        except BaseException:
            await asyncio.shield(self._drop(folder, living))
            raise
        self._stock.add(folder, record, living)

    async def warmed(self) -> Mapping[Shape, int]:
        return self._stock.counts()

    async def cool(self, shape: Shape, count: int) -> None:
        for _ in range(count):
            taken = self._stock.take(shape)
            if taken is None:
                return
            await self._drop(taken[0], taken[2])

    # How one comes to live

    async def _again(self, record: Record) -> Living | None:
        """A create that was cut short after its record was settled: it must run in the end. None: it is gone."""
        if await self._builder.state(record) is not None:
            return await self._run(record)
        await self._drop(self._yard.folder(record.spec.sandbox_id), self._living.pop(record.spec.sandbox_id, None))
        return None

    async def _built(self, spec: SandboxSpec) -> tuple[Path, Record]:
        draft = self._yard.draft()
        record = Record(spec, self._clock.now(), PREFIX + draft.name)
        try:
            await self._builder.make(draft, record)
        except BaseException:
            await asyncio.shield(self._drop(draft, None))
            raise
        return draft, record

    async def _make(self, spec: SandboxSpec) -> Living:
        draft, record = await self._built(spec)
        try:
            folder = self._yard.settle(draft, spec.sandbox_id)
        except AlreadyThere:
            await self._drop(draft, None)
            return await self._run(self._known(spec.sandbox_id))
        return await self._take_up(await self._hold(folder, record))

    async def _claim(self, spec: SandboxSpec) -> Living | None:
        """A machine made in advance gets its name, its limits and its way out."""
        shape = self.shape_of(spec)
        while shape is not None and (taken := self._stock.take(shape)) is not None:
            folder, record, living = taken
            if living is None or not living.alive() or (draft := self._yard.take_warm(folder)) is None:
                await self._drop(folder, living)
                continue
            record = replace(record, spec=spec, created_at=self._clock.now())
            try:
                if spec.resources != usual(spec.resources.disk_mb):
                    await self._engine.update(record.reference, container.limits(spec.resources))
                record.save(draft)
                folder = self._yard.settle(draft, spec.sandbox_id)
            except AlreadyThere:
                await self._drop(draft, living)
                return await self._run(self._known(spec.sandbox_id))
            except Missing:
                await self._drop(draft, living)
                continue
            except BaseException:
                await asyncio.shield(self._drop(draft, living))
                raise
            living.be(folder, record, self._outlet(record))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._take_up(living)
            if living.alive():
                return living
            self._living.pop(spec.sandbox_id, None)  # it ended in this moment, with nothing of anybody's in it
            await self._drop(folder, living)
        return None

    async def _run(self, record: Record) -> Living:
        """Running in the end, whatever it is now."""
        sandbox_id, state = record.spec.sandbox_id, await self._state(record)
        if state is MachineState.PAUSED:
            try:
                await self._engine.unpause(record.reference)
            except (errors.Conflict, errors.Unavailable):  # it is not frozen but stopped; engines say so in many ways
                if await self._builder.state(record) is not MachineState.RUNNING:
                    return await self._restart(record)
        living = self._living.get(sandbox_id)
        if living is None or not living.alive():
            living = await self._hold(self._yard.folder(sandbox_id), record)
        living.paused = False
        return await self._take_up(living)

    async def _restart(self, record: Record) -> Living:
        """Its processes are gone (the engine or the host was stopped, or somebody ended them); its files are not."""
        folder = self._yard.folder(record.spec.sandbox_id)
        if (old := self._living.pop(record.spec.sandbox_id, None)) is not None:
            await old.let_go()
        await self._builder.start(folder, record)
        return await self._take_up(await self._hold(folder, record))

    async def _freeze(self, record: Record) -> None:
        try:
            await self._engine.pause(record.reference)
        except errors.Conflict as error:  # paused already, or it ended in this moment: paused in either case
            if await self._state(record) is not MachineState.PAUSED:
                raise errors.ProviderUnavailable(f"The engine did not pause it: {error.message}") from error
        if (living := self._living.get(record.spec.sandbox_id)) is not None:
            living.paused = True

    async def _halt(self, record: Record) -> None:
        """End its processes and keep its files."""
        if (living := self._living.pop(record.spec.sandbox_id, None)) is not None:
            await living.let_go()
        await self._engine.kill(record.reference)

    async def _revive(self, sandbox_id: str) -> Living:
        async with self._turn(sandbox_id):
            living = self._living.get(sandbox_id)
            if living is not None and living.alive():
                return living
            record = self._known(sandbox_id)
            if await self._state(record) is not MachineState.RUNNING:
                raise _paused(sandbox_id)
            return await self._take_up(await self._hold(self._yard.folder(sandbox_id), record))

    async def _find_again(self, folder: Path, record: Record, states: Mapping[str, MachineState]) -> None:
        if (state := states.get(record.reference)) is None:
            return
        try:
            living = await self._hold(folder, record)
            living.paused = state is MachineState.PAUSED
            await self._take_up(living)
        except errors.PaddockError as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=record.spec.sandbox_id, problem=error.message)

    async def _restock(self, folder: Path, record: Record) -> None:
        """Made in advance by a server before this one, or beside it."""
        living = await self._hold(folder, record)
        if living.watch(self._warm_lost):
            self._stock.add(folder, record, living)
        else:
            await self._drop(folder, living)

    async def _take_up(self, living: Living) -> Living:
        sandbox_id = living.record.spec.sandbox_id
        self._living[sandbox_id] = living
        try:
            if living.watch(self._lost) and not living.paused:
                await living.outlet.open(living.machine)
        except BaseException:  # to be taken up whole by whoever asks next
            self._living.pop(sandbox_id, None)
            await asyncio.shield(living.let_go())
            raise
        return living

    async def _drop(self, folder: Path, living: Living | None) -> None:
        """What nobody will miss. Where the engine does not answer, the next sweep removes it."""
        if living is not None:
            await living.let_go()
        if (gone := self._yard.discard(folder)) is not None:
            try:
                await self._builder.destroy(gone)
            except errors.PaddockError as error:
                log.warning("the remains of a sandbox could not be removed yet", problem=error.message)

    async def _discard(self, folder: Path) -> None:
        if (gone := self._yard.discard(folder)) is not None:
            self._chores.add(asyncio.to_thread(disk.remove, gone))

    def _warm_lost(self, living: Living) -> None:
        self._stock.lost(living)
        self._chores.add(self._drop(living.folder, living))

    def _lost(self, living: Living) -> None:
        log.warning("sandbox ended", sandbox_id=living.record.spec.sandbox_id)

    async def _hold(self, folder: Path, record: Record) -> Living:
        environment = await self._builder.environment(record)
        return Living(folder, record, environment, self._clock, self._outlet(record), self._spool_limit)

    def _outlet(self, record: Record) -> Outlet:
        return Outlet(record.spec.egress, self._reach, self._resolver)

    async def _state(self, record: Record) -> MachineState:
        state = await self._builder.state(record)
        if state is None:
            raise errors.SandboxNotFound.by_id(record.spec.sandbox_id)
        return state

    def _known(self, sandbox_id: str) -> Record:
        record = Record.load(self._yard.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    @contextlib.asynccontextmanager
    async def _turn(self, sandbox_id: str) -> AsyncIterator[None]:
        async with self._turns.setdefault(sandbox_id, asyncio.Lock()):
            yield


def _found(record: Record, state: MachineState) -> Found:
    return Found(record.spec.sandbox_id, state, record.reference, record.created_at, record.spec.labels)


def _paused(sandbox_id: str) -> errors.Conflict:
    return errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
