"""Makes and ends what a sandbox is made of: the container, what its agent is born through, its folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from paddock import errors
from paddock.egress.policy import EgressMode
from paddock.providers.base import MachineState, SandboxSpec
from paddock.providers.common import certificates, removal
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.docker import container
from paddock.providers.docker.agent_start import AgentStarter
from paddock.providers.docker.agent_transport import ContainerTransport, ExecTransport, SocketTransport
from paddock.providers.docker.agent_volume import AgentVolume
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.host import AUTO, EngineHost, chosen_far, own_kernel, runtime_of
from paddock.providers.docker.shared_directory import engine_sees

log = structlog.get_logger(__name__)

PREFIX = "paddock-"
ENVIRONMENT = "environment.json"
FAR_MARK = "far"
"""A file in the folder of a sandbox that is reached so: the token of the kit that it was made with."""
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
    site: container.ContainerSettings
    kit: AgentVolume
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
        self._transport = way
        self._extra_ca = extra_ca
        self._births = dirs.root / "births"
        self._suspects: set[str] = set()
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
        far = chosen_far(self._transport, here, runtime_of(info, self._runtime))
        self.host = EngineHost.of(info, runtime=self._runtime, read_only=self._read_only, far=far)
        self._engine.thaw_first = own_kernel(self.host.runtime)
        await asyncio.to_thread(self._lay_out, str(info.get("Architecture") or platform.machine()))
        self._agent_starter = AgentStarter(self._engine)

    def close(self) -> None:
        if hasattr(self, "_midwife"):
            self._agent_starter.close()

    def require(self, spec: SandboxSpec) -> None:
        """What was asked for is given or refused, never less."""
        level = self.host.level
        if spec.isolation is not None and spec.isolation.rank > level.rank:
            raise errors.ConfinementUnavailable(
                f"This engine gives isolation level {level.value!r}, less than the {spec.isolation.value!r} that was "
                "asked for. The provider 'local' gives more where Paddock runs as root.",
                details={"level": level.value, "asked": spec.isolation.value},
            )
        if spec.egress.mode is EgressMode.FULL:
            raise errors.ConfinementUnavailable(
                "The provider 'docker' has the egress modes 'none' and 'proxy'. For 'full' use the provider 'local'."
            )
        self._require_mounts(spec)

    def way(self, folder: Path, record: SandboxRecord) -> Callable[[Callable[[], Path]], ContainerTransport]:
        """As it was made, whatever is chosen now."""
        if not (folder / FAR_MARK).exists():
            return SocketTransport
        token = (folder / FAR_MARK).read_text()
        return lambda _: ExecTransport(self._engine, record.reference, token)

    async def make(self, draft: Path, record: SandboxRecord, environment: Sequence[str]) -> None:
        """The container, started, with its agent listening. The record is there first: what a crash leaves is known."""
        await self._find_out(record.spec.template_id)
        birth = None if self.host.far else self._births / record.reference
        trusted = {} if self.site.authorities is None else certificates.variables(container.AUTHORITIES)
        (draft / ENVIRONMENT).write_text(json.dumps([*environment, *(f"{name}={at}" for name, at in trusted.items())]))
        if birth is None:
            (draft / FAR_MARK).write_text(self.kit.token)
            await self.kit.ready(record.spec.template_id)
        record.save(draft)
        if birth is not None:
            birth.mkdir(mode=0o755)
        await self._create(record, birth)
        await self._begin(draft, record)

    async def _find_out(self, image: str) -> None:
        """Before the first container, where nobody chose the way: near works only where the engine sees our files."""
        async with self._sharing:
            if self._shared or self.host.far:
                return
            try:
                if not await engine_sees(self._engine, self.site.installation, self._births, image):
                    log.info("the engine does not see this server's files: containers are reached through it (far)")
                    self.host = replace(self.host, far=True)
            except EngineNotFound as error:
                raise errors.TemplateNotFound(f"The engine has no image {image!r} any more: {error}") from None
            self._shared = True

    async def start(self, folder: Path, record: SandboxRecord) -> None:
        """Again, with fresh processes on the same files."""
        self._require_mounts(record.spec)
        await self._begin(folder, record)

    async def _begin(self, folder: Path, record: SandboxRecord) -> None:
        if (folder / FAR_MARK).exists():
            await self._engine.start(record.reference)
            return
        birth = self._births / record.reference
        birth.mkdir(mode=0o755, exist_ok=True)
        await self._agent_starter.start(record.reference, birth, folder)

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
        label = f"{container.INSTALLATION}={_installation(self._dirs.root / 'installation')}"
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
        await asyncio.to_thread(shutil.rmtree, self._births / record.reference, ignore_errors=True)

    async def destroy(self, gone: Path) -> None:
        """Everything of a sandbox whose folder is in the trash. To be called again after a crash."""
        record = SandboxRecord.load(gone)
        if record is not None:
            await self.end(record)
        await asyncio.to_thread(removal.remove, gone)

    async def sweep(self, containers: set[str]) -> None:
        """What crashes left: old drafts, trash, containers and births of no sandbox.

        ``containers`` were listed before the folders are. One on its way from folder to folder may still be missed:
        so only what was nobody's at the last sweep already is removed.
        """
        async with self._sweeping:  # looks that overlap would be one look
            await self._sweep(containers)

    async def _sweep(self, containers: set[str]) -> None:
        for path in self._dirs.abandoned():
            self._dirs.discard(path)
        for path in self._dirs.discarded():
            try:
                await self.destroy(path)
            except errors.PaddockError as error:
                log.warning("the remains of a sandbox could not be removed yet", problem=error.message)
        known, births = await asyncio.to_thread(self._known)
        if self._dirs.unreadable():
            return  # a container that looks like nobody's may be the one of a record that cannot be read
        nobodys = (containers | births) - known
        for name in nobodys & self._suspects:
            log.info("removing a container of no sandbox", container=name)
            await self._engine.remove(name)
            await asyncio.to_thread(shutil.rmtree, self._births / name, ignore_errors=True)
        self._suspects = nobodys - self._suspects

    def _known(self) -> tuple[set[str], set[str]]:
        births = set(os.listdir(self._births))  # noqa: PTH208
        drafts = {PREFIX + name for name in self._dirs.drafts()}
        records = [record for _, record in (*self._dirs.warm(), *self._dirs.sandboxes())]
        return drafts | {record.reference for record in records}, births

    def _lay_out(self, architecture: str) -> None:
        programs = Programs.find()
        if (missing := programs.problem()) is not None:
            raise errors.ProviderRefused(missing)
        self._dirs.create_layout()
        self._births.mkdir(mode=0o700, exist_ok=True)
        installation = _installation(self._dirs.root / "installation")
        authorities = self._authorities()
        self.kit = AgentVolume(self._engine, installation, architecture, authorities)
        self.site = container.ContainerSettings(
            installation,
            _copied(programs.agent, self._dirs.root / "bin"),
            self._runtime,
            self._read_only,
            self.kit.volume,
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

    async def _create(self, record: SandboxRecord, birth: Path | None) -> None:
        """With a hard disk limit where the storage driver has such a thing, which only trying tells."""
        hard = self._hard_disk is not False
        try:
            await self._engine.create(record.reference, container.body(self.site, record.spec, birth, hard_disk=hard))
        except EngineNotFound as error:
            raise errors.TemplateNotFound(
                f"The engine has no image {record.spec.template_id!r} any more: {error}"
            ) from None
        except errors.Unavailable as error:
            if not hard or "storage-opt" not in error.message.lower().replace(" ", "-"):
                raise
            self._hard_disk = False
            await self._create(record, birth)
            return
        if hard and not self._hard_disk:
            self._hard_disk = True
            self.host = replace(self.host, hard_disk=True)

    def _require_mounts(self, spec: SandboxSpec) -> None:
        """Also when it is started again: the host may have changed meanwhile."""
        socket = self._engine.address.socket
        if spec.mounts and self.host.far and socket is None:
            raise errors.ConfinementUnavailable(
                "Directories of this machine cannot be mounted by an engine elsewhere. Write files into the sandbox, "
                "or use a provider on this machine."
            )
        private = [self._dirs.root, *([Path(socket).resolve()] if socket else [])]
        for mount in spec.mounts:
            source = Path(mount.source)
            if not source.is_dir():
                raise errors.ConfinementUnavailable(f"There is no directory {mount.source!r} on the host to mount.")
            place = source.resolve()
            if any(one.is_relative_to(place) or place.is_relative_to(one) for one in private):
                raise errors.ConfinementUnavailable(
                    f"{mount.source!r} is not for mounting: Paddock's own folder or the engine's socket is in it."
                )


def _installation(path: Path) -> str:
    """A name of its own, so that two installations on one engine leave each other's containers alone."""
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        draft.write_text(secrets.token_hex(8))
        with contextlib.suppress(FileExistsError):  # another server was quicker
            os.link(draft, path)
        draft.unlink()
    return path.read_text()


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
