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
from paddock.egress.gate import OutboundConnection
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import (
    Capacity,
    InsideService,
    IsolationReport,
    MachineInfo,
    MachineState,
    Notice,
    Provider,
    SandboxSpec,
    Shape,
)
from paddock.providers.common import removal
from paddock.providers.common.cleanup_tasks import CleanupTasks
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs, SandboxExists
from paddock.providers.common.warm_machines import WarmMachines, anonymous, usual
from paddock.providers.docker import container, quota
from paddock.providers.docker.address import Address
from paddock.providers.docker.builder import PREFIX, ContainerBuilder
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.handle import DockerHandle
from paddock.providers.docker.host import AUTO
from paddock.providers.docker.images import EngineImages
from paddock.providers.docker.registry import HandleRegistry, paused
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
        extra_ca: Path | None = None,
        reachable: Sequence[str] = (),
        output: OutputLimits | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.on_this_machine = address.socket is not None
        self._engine = DockerEngine(address)
        self._images = EngineImages(self._engine, images, any_local=any_image, pull=pull)
        self._dirs = SandboxDirs(root.absolute())
        self._builder = ContainerBuilder(
            self._dirs, self._engine, runtime=runtime, read_only=read_only, way=way, extra_ca=extra_ca
        )
        self._warm_machines: WarmMachines[DockerHandle] = WarmMachines()
        self._cleanup = CleanupTasks()
        self._registry = HandleRegistry(
            self._dirs, self._engine, self._builder, self._clock, reachable, output or OutputLimits(), self._cleanup
        )
        self._locks: dict[str, asyncio.Lock] = {}
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
            extra_ca=settings.extra_ca,
            reachable=settings.egress_reachable,
            output=OutputLimits(settings.output_spool, settings.stall_timeout),
        )

    async def start(self) -> None:
        """Look at the engine, finish what a crash cut short, and take up every sandbox that lives."""
        await self._builder.prepare()
        states = await self._builder.states()
        await self._builder.sweep(set(states))
        records = await asyncio.to_thread(lambda: list(self._dirs.sandboxes()))
        await asyncio.gather(*(self._registry.find_running(folder, record, states) for folder, record in records))
        for folder, record in await asyncio.to_thread(lambda: list(self._dirs.warm())):
            await self._restock(folder, record)
        self._quota = asyncio.create_task(quota.keep(self._registry.handles.values))

    async def close(self) -> None:
        if self._quota is not None:
            self._quota.cancel()
            await asyncio.wait([self._quota])
        await self._registry.close()
        for one in self._warm_machines.clear():
            await one.detach()
        await self._cleanup.finish()
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

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        async with self._turn(spec.sandbox_id):
            record = SandboxRecord.load(self._dirs.folder(spec.sandbox_id))
            if record is not None and (handle := await self._again(record)) is not None:
                return _found(handle.record, MachineState.RUNNING)
            self._builder.require(spec)
            handle = await self._claim(spec) or await self._make(spec)
            return _found(handle.record, MachineState.RUNNING)

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        try:
            record = SandboxRecord.load(self._dirs.folder(sandbox_id))
        except errors.SandboxNotFound:
            return None
        if record is None or (state := await self._builder.state(record)) is None:
            return None
        return _found(record, state)

    async def list(self) -> list[MachineInfo]:
        states = await self._builder.states()
        records = await asyncio.to_thread(lambda: [record for _, record in self._dirs.sandboxes()])
        self._cleanup.add(self._builder.sweep(set(states)))
        found = [(record, states.get(record.reference)) for record in records]
        # One that was made after the engine was asked is not gone.
        late = {record.reference: await self._builder.state(record) for record, state in found if state is None}
        whole = [(record, state or late[record.reference]) for record, state in found]
        return [_found(record, state) for record, state in whole if state is not None]

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._turn(sandbox_id):
            record = self._registry.known(sandbox_id)
            state = await self._registry.state(record)
            if not keep_memory:
                await self._registry.halt(record)
            elif state is MachineState.RUNNING:
                await self._registry.freeze(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._turn(sandbox_id):
            await self._registry.run(self._registry.known(sandbox_id))

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._dirs.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        async with self._turn(sandbox_id):
            handle = self._registry.handles.get(sandbox_id)
            if handle is not None:
                handle.deleted = True
            # The container first: while the engine cannot say that it is gone, the folder says whose it is.
            try:
                if (record := self._record(folder, handle)) is not None:
                    await self._builder.end(record)
            except BaseException:
                if handle is not None:
                    handle.deleted = False  # it runs on as far as anybody knows
                raise
            self._registry.handles.pop(sandbox_id, None)
            if handle is not None:
                await handle.detach()
            if (gone := self._dirs.discard(folder)) is not None:
                self._cleanup.add(asyncio.to_thread(removal.remove, gone))
        self._locks.pop(sandbox_id, None)

    async def attach(self, sandbox_id: str) -> Machine:
        handle = self._registry.handles.get(sandbox_id)
        if handle is None or not handle.alive():
            async with self._turn(sandbox_id):
                handle = await self._registry.revive(sandbox_id)
        if handle.paused:
            raise paused(sandbox_id)
        return handle.machine

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        self._registry.known(sandbox_id)
        return self._builder.host.report()

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        async with self._turn(sandbox_id):
            record = self._registry.known(sandbox_id)
            if policy.mode is not record.spec.egress.mode:
                raise errors.Invalid("The egress mode of a sandbox is chosen when it is made.")
            changed = record.with_spec(egress=policy)
            await asyncio.to_thread(changed.save, self._dirs.folder(sandbox_id))
            if (handle := self._registry.handles.get(sandbox_id)) is not None:
                handle.record = changed
                handle.egress.update(policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        record = self._registry.known(sandbox_id)
        handle = self._registry.handles.get(sandbox_id)
        return handle.egress.report() if handle else self._registry.egress_of(record).report()

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> OutboundConnection:
        handle = self._registry.handles.get(sandbox_id)
        if handle is None:
            async with self._turn(sandbox_id):
                handle = await self._registry.revive(sandbox_id)
        return await handle.egress.connect(host, port, seconds)

    def answer_inside(self, service: InsideService) -> bool:
        self._registry.inside = service
        return True

    def tell(self, notice: Notice) -> None:
        self._registry.notice = notice

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:
        self._registry.bandwidths = bandwidths

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        if spec.mounts or spec.egress.mode is EgressMode.FULL:
            return None
        return Shape(spec.template_id, spec.resources.disk_mb)

    async def warm(self, shape: Shape) -> None:
        place, record = await self._built(anonymous(shape))
        handle: DockerHandle | None = None
        try:
            place = self._dirs.add_warm(place)
            handle = self._registry.hold(place, record)
            if not handle.watch(self._warm_lost):
                raise errors.ProviderUnavailable("A machine made in advance ended at once.")
            await handle.machine.usage()  # the link stands, and the agent answers
        except BaseException:
            await asyncio.shield(self._registry.drop(place, handle))
            raise
        self._warm_machines.add(place, record, handle)

    async def warmed(self) -> Mapping[Shape, int]:
        return self._warm_machines.counts()

    async def cool(self, shape: Shape, count: int) -> None:
        for _ in range(count):
            taken = self._warm_machines.take(shape)
            if taken is None:
                return
            await self._registry.drop(taken[0], taken[2])

    # How one comes to be

    async def _again(self, record: SandboxRecord) -> DockerHandle | None:
        """A create that was cut short after its record was settled: it must run in the end. None: it is gone."""
        if await self._builder.state(record) is not None:
            return await self._registry.run(record)
        await self._registry.drop(
            self._dirs.folder(record.spec.sandbox_id), self._registry.handles.pop(record.spec.sandbox_id, None)
        )
        return None

    async def _built(self, spec: SandboxSpec) -> tuple[Path, SandboxRecord]:
        environment = await self._images.require(spec.template_id)
        draft = self._dirs.draft()
        record = SandboxRecord(spec, self._clock.now(), PREFIX + draft.name)
        try:
            await self._builder.make(draft, record, environment)
        except BaseException:
            await asyncio.shield(self._registry.drop(draft, None))
            raise
        return draft, record

    async def _make(self, spec: SandboxSpec) -> DockerHandle:
        draft, record = await self._built(spec)
        try:
            folder = self._dirs.publish(draft, spec.sandbox_id)
        except SandboxExists:
            await self._registry.drop(draft, None)
            return await self._registry.run(self._registry.known(spec.sandbox_id))
        return await self._registry.adopt(self._registry.hold(folder, record))

    async def _claim(self, spec: SandboxSpec) -> DockerHandle | None:
        """A machine made in advance gets its name, its limits and its way out."""
        shape = self.shape_of(spec)
        while shape is not None and (taken := self._warm_machines.take(shape)) is not None:
            folder, record, handle = taken
            if handle is None or not handle.alive() or (draft := self._dirs.claim_warm(folder)) is None:
                await self._registry.drop(folder, handle)
                continue
            record = replace(record, spec=spec, created_at=self._clock.now())
            try:
                if spec.resources != usual(spec.resources.disk_mb):
                    await self._engine.update(record.reference, container.limits(spec.resources))
                record.save(draft)
                folder = self._dirs.publish(draft, spec.sandbox_id)
            except SandboxExists:
                await self._registry.drop(draft, handle)
                return await self._registry.run(self._registry.known(spec.sandbox_id))
            except EngineNotFound:
                await self._registry.drop(draft, handle)
                continue
            except BaseException:
                await asyncio.shield(self._registry.drop(draft, handle))
                raise
            handle.assign(folder, record, self._registry.egress_of(record))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._registry.adopt(handle)
            if handle.alive():
                return handle
            self._registry.handles.pop(spec.sandbox_id, None)  # it ended in this moment, and nobody had used it
            await self._registry.drop(folder, handle)
        return None

    async def _restock(self, folder: Path, record: SandboxRecord) -> None:
        """Made in advance by a server before this one, or beside it."""
        try:
            handle = self._registry.hold(folder, record)
        except (errors.PaddockError, OSError) as error:
            log.warning("a machine made in advance cannot be taken up", problem=str(error))
            await self._registry.drop(folder, None)
            return
        if handle.watch(self._warm_lost):
            self._warm_machines.add(folder, record, handle)
        else:
            await self._registry.drop(folder, handle)

    @staticmethod
    def _record(folder: Path, handle: DockerHandle | None) -> SandboxRecord | None:
        """As it is written, or as it was when it could be read."""
        try:
            return SandboxRecord.load(folder)
        except errors.ProviderUnavailable:
            if handle is None:
                raise
            return handle.record

    def _warm_lost(self, handle: DockerHandle) -> None:
        self._warm_machines.lost(handle)
        self._cleanup.add(self._registry.drop(handle.folder, handle))

    @contextlib.asynccontextmanager
    async def _turn(self, sandbox_id: str) -> AsyncIterator[None]:
        async with self._locks.setdefault(sandbox_id, asyncio.Lock()):
            yield


def _found(record: SandboxRecord, state: MachineState) -> MachineInfo:
    return MachineInfo(record.spec.sandbox_id, state, record.reference, record.created_at, record.spec.labels)
