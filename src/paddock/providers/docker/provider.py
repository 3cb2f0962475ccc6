"""The Docker provider: sandboxes in containers of an engine, on this machine or another.

Who a container is stands in the directory of its sandbox; whether it runs is asked of the engine, never remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import structlog

from paddock import errors
from paddock.clock import Clock
from paddock.machine.base import OutputLimits
from paddock.providers.base import CRASHED, Capacity, IsolationReport, MachineState, SandboxSpec
from paddock.providers.common import disk_limit
from paddock.providers.common.agent_handle import HandleServices
from paddock.providers.common.agent_provider import AgentProvider
from paddock.providers.common.record import SandboxRecord
from paddock.providers.docker import container
from paddock.providers.docker.address import Address
from paddock.providers.docker.builder import FROZEN, PREFIX, STATES, ContainerBuilder
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.handle import END_TIMEOUT_S, DockerHandle
from paddock.providers.docker.host import AUTO
from paddock.providers.docker.images import EngineImages
from paddock.settings import Settings

log = structlog.get_logger(__name__)


class DockerProvider(AgentProvider[DockerHandle]):
    name = "docker"
    reference_prefix = PREFIX

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
        super().__init__(root, clock, reachable=reachable, output=output)
        self.on_this_machine = address.socket is not None
        self._engine = DockerEngine(address)
        self._images = EngineImages(self._engine, images, any_local=any_image, pull=pull)
        self._builder = ContainerBuilder(
            self._dirs, self._engine, runtime=runtime, read_only=read_only, way=way, extra_ca=extra_ca
        )
        self._disk_limit: asyncio.Task[None] | None = None

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

    async def close(self) -> None:
        await super().close()
        await self._images.close()
        self._builder.close()
        await self._engine.close()

    async def templates(self) -> list[str]:
        return await self._images.names()

    async def capacity(self) -> Capacity:
        """As the engine says. The size of its disk it does not say."""
        info = await self._engine.info()
        memory = int(info.get("MemTotal") or 0) >> 20
        return Capacity(cpu=float(info.get("NCPU") or 0) or None, memory_mb=memory or None)

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        self._registry.known(sandbox_id)
        return self._builder.host.report()

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._registry.lock(sandbox_id):
            record = self._registry.known(sandbox_id)
            state = await self._known_state(record)
            if not keep_memory:
                await self._registry.discard(sandbox_id)
                with _not_found(record):
                    await self._engine.kill(record.reference)
            elif state is MachineState.RUNNING:
                await self._freeze(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._registry.lock(sandbox_id):
            await self._run(self._registry.known(sandbox_id))

    # What is supplied to the base

    async def _prepare(self) -> None:
        await self._builder.prepare()

    async def _recover(self, records: Sequence[SandboxRecord]) -> Callable[[SandboxRecord], MachineState | None]:
        states = await self._builder.states()
        await self._builder.sweep(set(states))
        return lambda record: states.get(record.reference)

    def _start_watching(self, found: Sequence[tuple[Path, SandboxRecord]]) -> None:
        self._disk_limit = asyncio.create_task(
            disk_limit.keep(self._registry.values, DockerHandle.kill_processes, lambda: self._notice)
        )

    async def _stop_watching(self) -> None:
        if self._disk_limit is not None:
            self._disk_limit.cancel()
            await asyncio.wait([self._disk_limit])

    def _new_handle(self, folder: Path, record: SandboxRecord, services: HandleServices) -> DockerHandle:
        transport = self._builder.transport(folder, record)
        return DockerHandle(folder, record, services, transport, self._engine, self._builder.environment(folder))

    def _require(self, spec: SandboxSpec) -> None:
        self._builder.require(spec)

    async def _start(
        self, draft: Path, record: SandboxRecord, publish: Callable[[Path], Path]
    ) -> tuple[Path, SandboxRecord]:
        environment = await self._images.require(record.spec.template_id)
        await self._builder.make(draft, record, environment)
        return publish(draft), record

    async def _set_limits(self, record: SandboxRecord) -> bool:
        try:
            await self._engine.update(record.reference, container.limits(record.spec.resources))
        except EngineNotFound:
            return False
        return True

    async def _state(self, record: SandboxRecord) -> MachineState | None:
        return await self._builder.state(record)

    async def _states(self) -> Mapping[str, MachineState]:
        states = await self._builder.states()
        self._cleanup.add(self._builder.sweep(set(states)))
        return states

    async def _run(self, record: SandboxRecord) -> DockerHandle:
        sandbox_id, status = record.spec.sandbox_id, await self._builder.status(record)
        if status is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        if status == FROZEN:
            with _not_found(record):
                await self._engine.unpause(record.reference)
        elif STATES[status] is MachineState.PAUSED:
            return await self._restart(record)
        handle = self._registry.get(sandbox_id)
        if handle is None or not handle.alive():
            return await self._registry.adopt(record)
        handle.paused = False
        return await self._registry.open(handle)

    async def _restart(self, record: SandboxRecord) -> DockerHandle:
        """Its processes are gone (the engine or the host was stopped, or somebody ended them); its files are not."""
        await self._registry.discard(record.spec.sandbox_id)
        with _not_found(record):
            await self._builder.start(self._dirs.folder(record.spec.sandbox_id), record)
        return await self._registry.adopt(record)

    async def _freeze(self, record: SandboxRecord) -> None:
        try:
            with _not_found(record):
                await self._engine.pause(record.reference)
        except errors.Conflict as error:  # paused already, or it ended in this moment: paused in either case
            if await self._known_state(record) is not MachineState.PAUSED and not await self._ends(record):
                raise errors.ProviderUnavailable(f"The engine did not pause it: {error.message}") from error
        if (handle := self._registry.get(record.spec.sandbox_id)) is not None:
            handle.paused = True

    async def _ends(self, record: SandboxRecord) -> bool:
        """The engine hears of the end of a process a moment after it."""
        with contextlib.suppress(TimeoutError, EngineNotFound):
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._engine.ended(record.reference)
                return True
        return False

    async def _end(self, record: SandboxRecord) -> None:
        await self._builder.end(record)

    async def _report_crash(self, handle: DockerHandle) -> None:
        sandbox_id = handle.record.spec.sandbox_id
        try:
            report = await handle.crash_report()
        except errors.PaddockError as error:  # it is told when sandboxes are compared with the engine
            log.warning("the engine does not say how a sandbox ended", sandbox_id=sandbox_id, problem=error.message)
            return
        if report is None or handle.deleted:
            log.warning("the connection to a sandbox ended", sandbox_id=sandbox_id)
            return
        told = {name: report[name] for name in ("reason", "exit_code", "oom_killed")}
        log.warning("sandbox ended", sandbox_id=sandbox_id, **told)
        await self._notice(sandbox_id, CRASHED, report)


@contextlib.contextmanager
def _not_found(record: SandboxRecord) -> Iterator[None]:
    """A container that somebody else removed in this moment is a sandbox that is gone."""
    try:
        yield
    except EngineNotFound:
        raise errors.SandboxNotFound.by_id(record.spec.sandbox_id) from None
