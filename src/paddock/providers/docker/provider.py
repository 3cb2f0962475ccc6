"""The Docker provider: sandboxes in containers of an engine, on this machine or another. Every step is safe to repeat.

Who a container is stands in the folder of its sandbox; whether it runs is asked of the engine, never remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import structlog

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.outward import Outward
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import (
    Capacity,
    Found,
    InsideService,
    IsolationReport,
    MachineState,
    Provider,
    SandboxSpec,
    Shape,
)
from paddock.providers.docker import container, quota
from paddock.providers.docker.address import Address
from paddock.providers.docker.builder import PREFIX, Builder
from paddock.providers.docker.engine import Engine, Missing
from paddock.providers.docker.host import AUTO
from paddock.providers.docker.images import Images
from paddock.providers.docker.lives import Lives, paused
from paddock.providers.docker.living import Living
from paddock.providers.ground import removal
from paddock.providers.ground.chores import Chores
from paddock.providers.ground.record import Record
from paddock.providers.ground.stock import Stock, anonymous, usual
from paddock.providers.ground.yard import AlreadyThere, Yard
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
        way: str = AUTO,
        reachable: Sequence[str] = (),
        output: OutputLimits | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.on_this_machine = address.socket is not None
        self._engine = Engine(address)
        self._images = Images(self._engine, images, any_local=any_image, pull=pull)
        self._yard = Yard(root.absolute())
        self._builder = Builder(self._yard, self._engine, runtime=runtime, read_only=read_only, way=way)
        self._stock: Stock[Living] = Stock()
        self._lives = Lives(self._yard, self._engine, self._builder, self._clock, reachable, output or OutputLimits())
        self._turns: dict[str, asyncio.Lock] = {}
        self._chores = Chores()
        self._quota: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> Self:
        return cls(
            settings.home / "docker",
            clock,
            address=Address.parse(settings.docker_host, settings.docker_tls_verify, settings.docker_cert_path),
            images=settings.docker_images,
            any_image=settings.docker_any_image,
            pull=settings.docker_pull,
            runtime=settings.docker_runtime,
            read_only=settings.docker_read_only,
            way=settings.docker_way,
            reachable=settings.egress_reachable,
            output=OutputLimits(settings.output_spool, settings.stall_timeout),
        )

    async def start(self) -> None:
        """Look at the engine, finish what a crash cut short, and take up every sandbox that lives."""
        await self._builder.prepare()
        states = await self._builder.states()
        await self._builder.sweep(set(states))
        records = await asyncio.to_thread(lambda: list(self._yard.sandboxes()))
        await asyncio.gather(*(self._lives.find_again(folder, record, states) for folder, record in records))
        for folder, record in await asyncio.to_thread(lambda: list(self._yard.warm())):
            await self._restock(folder, record)
        self._quota = asyncio.create_task(quota.keep(self._lives.living.values))

    async def close(self) -> None:
        if self._quota is not None:
            self._quota.cancel()
            await asyncio.wait([self._quota])
        await self._lives.close()
        for one in self._stock.clear():
            await one.let_go()
        await self._chores.finish()
        await self._images.close()
        self._builder.close()
        await self._engine.close()

    async def capacity(self) -> Capacity:
        """As the engine says. The size of its disk it does not say."""
        info = await self._engine.info()
        memory = int(info.get("MemTotal") or 0) >> 20
        return Capacity(cpu=float(info.get("NCPU") or 0) or None, memory_mb=memory or None)

    async def templates(self) -> list[str]:
        return await self._images.names()

    async def create(self, spec: SandboxSpec) -> Found:
        async with self._turn(spec.sandbox_id):
            record = Record.load(self._yard.folder(spec.sandbox_id))
            if record is not None and (living := await self._again(record)) is not None:
                return _found(living.record, MachineState.RUNNING)
            self._builder.require(spec)
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
            record = self._lives.known(sandbox_id)
            state = await self._lives.state(record)
            if not keep_memory:
                await self._lives.halt(record)
            elif state is MachineState.RUNNING:
                await self._lives.freeze(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._turn(sandbox_id):
            await self._lives.run(self._lives.known(sandbox_id))

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._yard.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        async with self._turn(sandbox_id):
            living = self._lives.living.get(sandbox_id)
            if living is not None:
                living.deleted = True
            # The container first: while the engine cannot say that it is gone, the folder says whose it is.
            if (record := self._record(folder, living)) is not None:
                await self._builder.end(record)
            self._lives.living.pop(sandbox_id, None)
            if living is not None:
                await living.let_go()
            if (gone := self._yard.discard(folder)) is not None:
                self._chores.add(asyncio.to_thread(removal.remove, gone))
        self._turns.pop(sandbox_id, None)

    async def attach(self, sandbox_id: str) -> Machine:
        living = self._lives.living.get(sandbox_id)
        if living is None or not living.alive():
            async with self._turn(sandbox_id):
                living = await self._lives.revive(sandbox_id)
        if living.paused:
            raise paused(sandbox_id)
        return living.machine

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        self._lives.known(sandbox_id)
        return self._builder.host.report()

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        async with self._turn(sandbox_id):
            record = self._lives.known(sandbox_id)
            if policy.mode is not record.spec.egress.mode:
                raise errors.Invalid("The egress mode of a sandbox is chosen when it is made.")
            changed = record.with_spec(egress=policy)
            await asyncio.to_thread(changed.save, self._yard.folder(sandbox_id))
            if (living := self._lives.living.get(sandbox_id)) is not None:
                living.record = changed
                living.outlet.update(policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        record = self._lives.known(sandbox_id)
        living = self._lives.living.get(sandbox_id)
        return living.outlet.report() if living else self._lives.outlet(record).report()

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> Outward:
        living = self._lives.living.get(sandbox_id)
        if living is None:
            async with self._turn(sandbox_id):
                living = await self._lives.revive(sandbox_id)
        return await living.outlet.connect(host, port, seconds)

    def answer_inside(self, service: InsideService) -> bool:
        self._lives.inside = service
        return True

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:
        self._lives.bandwidths = bandwidths

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        if spec.mounts or spec.egress.mode is EgressMode.FULL:
            return None
        return Shape(spec.template_id, spec.resources.disk_mb)

    async def warm(self, shape: Shape) -> None:
        place, record = await self._built(anonymous(shape))
        living: Living | None = None
        try:
            place = self._yard.put_warm(place)
            living = self._lives.hold(place, record)
            if not living.watch(self._warm_lost):
                raise errors.ProviderUnavailable("A machine made in advance ended at once.")
            await living.machine.usage()  # the link stands, and the agent answers
        except BaseException:
            await asyncio.shield(self._lives.drop(place, living))
            raise
        self._stock.add(place, record, living)

    async def warmed(self) -> Mapping[Shape, int]:
        return self._stock.counts()

    async def cool(self, shape: Shape, count: int) -> None:
        for _ in range(count):
            taken = self._stock.take(shape)
            if taken is None:
                return
            await self._lives.drop(taken[0], taken[2])

    # How one comes to be

    async def _again(self, record: Record) -> Living | None:
        """A create that was cut short after its record was settled: it must run in the end. None: it is gone."""
        if await self._builder.state(record) is not None:
            return await self._lives.run(record)
        await self._lives.drop(
            self._yard.folder(record.spec.sandbox_id), self._lives.living.pop(record.spec.sandbox_id, None)
        )
        return None

    async def _built(self, spec: SandboxSpec) -> tuple[Path, Record]:
        environment = await self._images.require(spec.template_id)
        draft = self._yard.draft()
        record = Record(spec, self._clock.now(), PREFIX + draft.name)
        try:
            await self._builder.make(draft, record, environment)
        except BaseException:
            await asyncio.shield(self._lives.drop(draft, None))
            raise
        return draft, record

    async def _make(self, spec: SandboxSpec) -> Living:
        draft, record = await self._built(spec)
        try:
            folder = self._yard.settle(draft, spec.sandbox_id)
        except AlreadyThere:
            await self._lives.drop(draft, None)
            return await self._lives.run(self._lives.known(spec.sandbox_id))
        return await self._lives.take_up(self._lives.hold(folder, record))

    async def _claim(self, spec: SandboxSpec) -> Living | None:
        """A machine made in advance gets its name, its limits and its way out."""
        shape = self.shape_of(spec)
        while shape is not None and (taken := self._stock.take(shape)) is not None:
            folder, record, living = taken
            if living is None or not living.alive() or (draft := self._yard.take_warm(folder)) is None:
                await self._lives.drop(folder, living)
                continue
            record = replace(record, spec=spec, created_at=self._clock.now())
            try:
                if spec.resources != usual(spec.resources.disk_mb):
                    await self._engine.update(record.reference, container.limits(spec.resources))
                record.save(draft)
                folder = self._yard.settle(draft, spec.sandbox_id)
            except AlreadyThere:
                await self._lives.drop(draft, living)
                return await self._lives.run(self._lives.known(spec.sandbox_id))
            except Missing:
                await self._lives.drop(draft, living)
                continue
            except BaseException:
                await asyncio.shield(self._lives.drop(draft, living))
                raise
            living.be(folder, record, self._lives.outlet(record))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._lives.take_up(living)
            if living.alive():
                return living
            self._lives.living.pop(spec.sandbox_id, None)  # it ended in this moment, with nothing of anybody's in it
            await self._lives.drop(folder, living)
        return None

    async def _restock(self, folder: Path, record: Record) -> None:
        """Made in advance by a server before this one, or beside it."""
        try:
            living = self._lives.hold(folder, record)
        except (errors.PaddockError, OSError) as error:
            log.warning("a machine made in advance cannot be taken up", problem=str(error))
            await self._lives.drop(folder, None)
            return
        if living.watch(self._warm_lost):
            self._stock.add(folder, record, living)
        else:
            await self._lives.drop(folder, living)

    @staticmethod
    def _record(folder: Path, living: Living | None) -> Record | None:
        """As it is written, or as it was when it could be read."""
        try:
            return Record.load(folder)
        except errors.ProviderUnavailable:
            if living is None:
                raise
            return living.record

    def _warm_lost(self, living: Living) -> None:
        self._stock.lost(living)
        self._chores.add(self._lives.drop(living.folder, living))

    @contextlib.asynccontextmanager
    async def _turn(self, sandbox_id: str) -> AsyncIterator[None]:
        async with self._turns.setdefault(sandbox_id, asyncio.Lock()):
            yield


def _found(record: Record, state: MachineState) -> Found:
    return Found(record.spec.sandbox_id, state, record.reference, record.created_at, record.spec.labels)
