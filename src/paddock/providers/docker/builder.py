"""Makes and ends what a sandbox is made of: the container, where its agent asks for its descriptors, its folder."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from paddock import errors, removal
from paddock.egress.policy import EgressMode
from paddock.providers.base import MachineState, SandboxSpec
from paddock.providers.common import certificates
from paddock.providers.common.confinement import require_level, require_mounts
from paddock.providers.common.installation import installation_name
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.docker import container
from paddock.providers.docker.agent_start import AgentStarter
from paddock.providers.docker.agent_transport import ContainerTransport, ExecTransport, SocketTransport
from paddock.providers.docker.agent_volume import AgentVolume, engine_sees
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.host import AUTO, EngineHost, chosen_far, own_kernel, runtime_of

log = structlog.get_logger(__name__)

PREFIX = "paddock-"
ENVIRONMENT = "environment.json"
FAR_MARK = "far"
"""A file in the folder of a sandbox that is reached so: the token of the volume that it was made with."""
FROZEN = "paused"
STATES = {
    "running": MachineState.RUNNING,
    FROZEN: MachineState.PAUSED,
    "created": MachineState.PAUSED,
    "exited": MachineState.PAUSED,
    "stopped": MachineState.PAUSED,
    "restarting": MachineState.RUNNING,
}
"""Those that an engine has besides (``removing``, ``dead``) are of containers that are never to come back."""


class ContainerBuilder:
    """Usable after ``prepare``."""

    host: EngineHost
    settings: container.ContainerSettings
    agent_volume: AgentVolume
    _agent_starter: AgentStarter

    def __init__(
        self,
        dirs: SandboxDirs,
        engine: DockerEngine,
        *,
        runtime: str,
        read_only: bool,
        way: str = AUTO,
        extra_ca: Path | None = None,
    ) -> None:
        self._dirs = dirs
        self._engine = engine
        self._runtime = runtime
        self._read_only = read_only
        self._way = way
        self._extra_ca = extra_ca
        self._start_directories = dirs.root / "births"
        self._last_orphans: set[str] = set()
        self._sweeping = asyncio.Lock()
        self._hard_disk: bool | None = None
        self._shared = way != AUTO
        """It is known, or said by the operator, whether the engine sees our files."""
        self._sharing = asyncio.Lock()

    async def prepare(self) -> None:
        """Look at the engine. Raises with what to do where it cannot run sandboxes."""
        await self._engine.negotiate()
        info = await self._engine.info()
        if self._runtime and self._runtime not in (info.get("Runtimes") or {self._runtime: {}}):
            known = ", ".join(sorted(info["Runtimes"]))
            raise errors.ProviderRefused(f"The engine has no runtime {self._runtime!r}. It has: {known}.")
        here = self._engine.address.socket is not None
        far = chosen_far(self._way, here, runtime_of(info, self._runtime))
        self.host = EngineHost.of(info, runtime=self._runtime, read_only=self._read_only, far=far)
        self._engine.thaw_first = own_kernel(self.host.runtime)
        await asyncio.to_thread(self._create_layout, str(info.get("Architecture") or platform.machine()))
        self._agent_starter = AgentStarter(self._engine)

    def close(self) -> None:
        if hasattr(self, "_agent_starter"):
            self._agent_starter.close()

    def require(self, spec: SandboxSpec) -> None:
        """What was asked for is given or refused, never less."""
        remedy = "The provider 'local' gives more where Paddock runs as root."
        require_level(spec, self.host.level, "This engine", remedy)
        if spec.egress.mode is EgressMode.FULL:
            raise errors.ConfinementUnavailable(
                "The provider 'docker' has the egress modes 'none' and 'proxy'. For 'full' use the provider 'local'."
            )
        self._require_mounts(spec)

    def transport(self, folder: Path, record: SandboxRecord) -> Callable[[Callable[[], Path]], ContainerTransport]:
        """As it was made, whatever is chosen now."""
        if not (folder / FAR_MARK).exists():
            return SocketTransport
        token = (folder / FAR_MARK).read_text()
        return lambda _: ExecTransport(self._engine, record.reference, token)

    async def make(self, draft: Path, record: SandboxRecord, environment: Sequence[str]) -> None:
        """The container, started, with its agent listening. The record is there first: what a crash leaves is known."""
        await self._choose_way(record.spec.template_id)
        start_directory = None if self.host.far else self._start_directories / record.reference
        trusted = {} if self.settings.authorities is None else certificates.variables(container.AUTHORITIES)
        (draft / ENVIRONMENT).write_text(json.dumps([*environment, *(f"{name}={at}" for name, at in trusted.items())]))
        if start_directory is None:
            (draft / FAR_MARK).write_text(self.agent_volume.token)
            await self.agent_volume.ready(record.spec.template_id)
        record.save(draft)
        if start_directory is not None:
            start_directory.mkdir(mode=0o755)
        await self._create(record, start_directory)
        await self._start_container(draft, record)

    async def _choose_way(self, image: str) -> None:
        """Before the first container, where nobody chose the way: near works only where the engine sees our files."""
        async with self._sharing:
            if self._shared or self.host.far:
                return
            try:
                if not await engine_sees(self._engine, self.settings.installation, self._start_directories, image):
                    log.info("the engine does not see this server's files: containers are reached through it (far)")
                    self.host = replace(self.host, far=True)
            except EngineNotFound as error:
                raise errors.TemplateNotFound(f"The engine has no image {image!r} any more: {error}") from None
            self._shared = True

    async def start(self, folder: Path, record: SandboxRecord) -> None:
        """Again, with fresh processes on the same files."""
        self._require_mounts(record.spec)
        await self._start_container(folder, record)

    async def _start_container(self, folder: Path, record: SandboxRecord) -> None:
        if (folder / FAR_MARK).exists():
            await self._engine.start(record.reference)
            return
        start_directory = self._start_directories / record.reference
        start_directory.mkdir(mode=0o755, exist_ok=True)
        await self._agent_starter.start(record.reference, start_directory, folder)

    async def status(self, record: SandboxRecord) -> str | None:
        """One of STATES, by the engine's name for it. None is definite: there is no container of this sandbox."""
        found = await self._engine.inspect(record.reference)
        status = None if found is None else str(found["State"]["Status"])
        return status if status in STATES else None

    async def state(self, record: SandboxRecord) -> MachineState | None:
        status = await self.status(record)
        return None if status is None else STATES[status]

    async def states(self) -> dict[str, MachineState]:
        """Of all containers of this installation, by reference."""
        label = f"{container.INSTALLATION}={installation_name(self._dirs.root)}"
        found = {one["Names"][0].lstrip("/"): STATES.get(one["State"]) for one in await self._engine.containers(label)}
        return {name: state for name, state in found.items() if state is not None}

    def environment(self, folder: Path) -> list[str]:
        """Kept beside the record, so that a server that comes back need not ask the engine about each."""
        try:
            return [str(pair) for pair in json.loads((folder / ENVIRONMENT).read_bytes())]
        except (OSError, ValueError) as error:
            raise errors.ProviderUnavailable(
                f"The folder of sandbox {folder.name!r} cannot be read: {error}"
            ) from error

    async def end(self, record: SandboxRecord) -> None:
        """Its container, with everything in it. Raises where the engine cannot say that it is gone."""
        await self._engine.remove(record.reference)
        await asyncio.to_thread(shutil.rmtree, self._start_directories / record.reference, ignore_errors=True)

    async def destroy(self, gone: Path) -> None:
        """Everything of a sandbox whose folder is in the trash. To be called again after a crash."""
        record = SandboxRecord.load(gone)
        if record is not None:
            await self.end(record)
        await asyncio.to_thread(removal.remove, gone)

    async def sweep(self, containers: set[str]) -> None:
        """What crashes left: old drafts, trash, containers and directories of no sandbox.

        ``containers`` were listed before the folders are. One on its way from folder to folder may still be missed:
        so only what had no owner at the last sweep already is removed.
        """
        async with self._sweeping:  # overlapping sweeps would count as one
            await self._sweep(containers)

    async def _sweep(self, containers: set[str]) -> None:
        for path in self._dirs.abandoned():
            self._dirs.discard(path)
        for path in self._dirs.discarded():
            try:
                await self.destroy(path)
            except errors.PaddockError as error:
                log.warning("the remains of a sandbox could not be removed yet", problem=error.message)
        known, directories = await asyncio.to_thread(self._known)
        if self._dirs.unreadable():
            return  # a container that seems to have no owner may be that of a record that cannot be read
        orphans = (containers | directories) - known
        for name in orphans & self._last_orphans:
            log.info("removing a container of no sandbox", container=name)
            await self._engine.remove(name)
            await asyncio.to_thread(shutil.rmtree, self._start_directories / name, ignore_errors=True)
        self._last_orphans = orphans - self._last_orphans

    def _known(self) -> tuple[set[str], set[str]]:
        directories = set(os.listdir(self._start_directories))  # noqa: PTH208
        drafts = {PREFIX + name for name in self._dirs.drafts()}
        records = [record for _, record in (*self._dirs.warm(), *self._dirs.sandboxes())]
        return drafts | {record.reference for record in records}, directories

    def _create_layout(self, architecture: str) -> None:
        programs = Programs.find()
        if (missing := programs.problem()) is not None:
            raise errors.ProviderRefused(missing)
        self._dirs.create_layout()
        self._start_directories.mkdir(mode=0o700, exist_ok=True)
        installation = installation_name(self._dirs.root)
        authorities = self._authorities()
        self.agent_volume = AgentVolume(self._engine, installation, architecture, authorities)
        self.settings = container.ContainerSettings(
            installation,
            _copied(programs.agent, self._dirs.root / "bin"),
            self._runtime,
            self._read_only,
            self.agent_volume.volume,
            authorities,
            here=self._engine.address.socket is not None or not self.host.far,
        )

    def _authorities(self) -> Path | None:
        """The file stays when the setting goes: a container that was made with it needs it whenever it starts."""
        if self._extra_ca is None:
            return None
        path = self._dirs.root / "bin" / certificates.FILE
        certificates.write(self._extra_ca, path)
        return path

    async def _create(self, record: SandboxRecord, start_directory: Path | None) -> None:
        """With a hard disk limit where the storage driver has such a thing, which only trying tells."""
        hard = self._hard_disk is not False
        try:
            await self._engine.create(
                record.reference, container.body(self.settings, record.spec, start_directory, hard_disk=hard)
            )
        except EngineNotFound as error:
            raise errors.TemplateNotFound(
                f"The engine has no image {record.spec.template_id!r} any more: {error}"
            ) from None
        except errors.Unavailable as error:
            if not hard or "storage-opt" not in error.message.lower().replace(" ", "-"):
                raise
            self._hard_disk = False
            await self._create(record, start_directory)
            return
        if hard and not self._hard_disk:
            self._hard_disk = True
            self.host = replace(self.host, hard_disk=True)

    def _require_mounts(self, spec: SandboxSpec) -> None:
        socket = self._engine.address.socket
        if spec.mounts and self.host.far and socket is None:
            raise errors.ConfinementUnavailable(
                "Directories of this machine cannot be mounted by an engine elsewhere. Write files into the sandbox, "
                "or use a provider on this machine."
            )
        private = [self._dirs.root, *([Path(socket).resolve()] if socket else [])]
        require_mounts(spec, private, "Paddock's own folder or the engine's socket")


def _copied(agent: Path, folder: Path) -> Path:
    """At a path that stays the same when Paddock is installed again; running containers keep the one they have."""
    folder.mkdir(mode=0o755, exist_ok=True)
    target = folder / f"paddock-agent-{platform.machine()}"
    if not target.exists() or target.read_bytes() != agent.read_bytes():
        draft = folder / f".{target.name}.{secrets.token_hex(4)}"
        shutil.copyfile(agent, draft)
        draft.chmod(0o755)
        draft.replace(target)
    return target
