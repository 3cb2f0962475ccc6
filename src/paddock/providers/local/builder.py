"""Makes and ends what a sandbox is made of on this host: folder, disk, ids, control group, processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import select
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddock import addons, errors, removal
from paddock.addons import addon_store
from paddock.disk_space import ReserveFile
from paddock.egress.policy import EgressMode
from paddock.images.store import IMAGES, ImageStore
from paddock.machine.threads import in_thread
from paddock.providers.base import IsolationLevel, SandboxSpec
from paddock.providers.common import certificates, sandbox_egress
from paddock.providers.common.cgroups import CgroupHandle
from paddock.providers.common.confinement import require_level, require_mounts
from paddock.providers.common.disk import Disks
from paddock.providers.common.launch import LaunchedProcess, Launcher
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import RunningProcess, SandboxRecord, boot_id
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.common.seccomp.compiler import program
from paddock.providers.local import host as machine
from paddock.providers.local import private_files, uids
from paddock.providers.local.gvisor import runsc
from paddock.providers.local.gvisor.backend import GvisorBackend
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.providers.local.host import HostCapabilities
from paddock.providers.local.isolation_backend import IsolationBackend, LaunchResources, NamespaceBackend
from paddock.providers.local.plan import LaunchSite
from paddock.providers.local.template import LocalTemplate
from paddock.providers.local.templates import LocalTemplates

log = structlog.get_logger(__name__)

_END_SECONDS = 10.0
_KILL_AGAIN_SECONDS = 0.2


class LocalBuilder:
    """Usable after ``prepare``."""

    host: HostCapabilities
    templates: LocalTemplates
    _disks: Disks
    _launcher: Launcher

    def __init__(
        self,
        dirs: SandboxDirs,
        reserve: ReserveFile,
        templates: Path,
        addons: Path | None = None,
        wanted: RunscSettings | None = None,
        extra_ca: Path | None = None,
    ) -> None:
        self._dirs = dirs
        self._reserve = reserve
        self._wanted = wanted or RunscSettings()
        self._gvisor: GvisorBackend | None = None
        self._template_folder = templates
        self._images = ImageStore(dirs.root.parent / IMAGES)
        self._addons = addons
        self._extra_ca = extra_ca
        self.trusted: Mapping[str, str] = {}
        """Variables that name the certificate authorities, where the operator added some."""
        self.programs = Programs.find()
        self.on_start: Callable[[Path, RunningProcess], None] = lambda folder, running: None
        """Told of each sandbox when it is written down, and before anything runs in it."""

    def prepare(self) -> None:
        """Look at the machine. Raises with what to do where it cannot run sandboxes."""
        self._dirs.create_layout()
        if self._addons is not None:
            addon_store.lay_out(self._addons)
            if self._extra_ca is not None:
                # With the add-ons, because every sandbox sees these, also those that run already.
                place = f"certificates/{certificates.FILE}"
                certificates.write(self._extra_ca, self._addons / place)
                self.trusted = certificates.variables(f"{addons.INSIDE}/{place}")
        if (missing := self.programs.problem()) is not None:
            raise errors.ProviderRefused(missing)
        self._launcher = Launcher(self.programs.launcher, program(platform.machine()))
        self.host = machine.look(self._dirs.root, self.programs, self._launcher)
        if self.host.problems:
            raise errors.ProviderRefused(" ".join(self.host.problems))
        self._namespaces = NamespaceBackend(self.host)
        self._disks = Disks(self._dirs.images, self.host.disk_image)
        self.templates = LocalTemplates(self._template_folder, self._dirs.made, self._images, self.host.privileged)

    def close(self) -> None:
        if hasattr(self, "_launcher"):
            self._launcher.close()
            self.host.cgroups.leave()

    def require(self, spec: SandboxSpec) -> None:
        """What was asked for is given or refused, never less."""
        if kind(spec) is GvisorBackend:
            self._require_kernel(spec)
        else:
            require_level(spec, self.host.level, "This machine", "`paddock doctor` says what is missing.")
        if spec.egress.mode is EgressMode.FULL and self.host.nft is None:
            raise errors.ConfinementUnavailable(
                "Full egress needs the program nft here (Debian: apt install nftables)."
            )
        self._require_mounts(spec)

    def backend(self, spec: SandboxSpec) -> IsolationBackend:
        """Raises where this machine has none such."""
        if kind(spec) is NamespaceBackend:
            return self._namespaces
        if self._gvisor is None:
            self._gvisor = GvisorBackend(self.host, runsc.find(self._wanted, self.host))
        return self._gvisor

    async def start(
        self, folder: Path, record: SandboxRecord, settle: Callable[[Path], Path]
    ) -> tuple[Path, SandboxRecord]:
        """Start what is in ``folder`` and, once it stands, move it where it belongs. The disk stays in any case."""
        backend = self.backend(record.spec)
        prepared: list[SandboxParts] = []  # by a thread, which goes on to its end when this is cancelled
        placed, started = folder, False

        def commit(started_process: LaunchedProcess) -> None:
            nonlocal placed, record
            site = prepared[0].site
            running = RunningProcess(
                started_process.pid, started_process.start_time, boot_id(), site.uid_slot, site.group
            )
            record = record.with_running(running)
            record.save(folder)
            self.on_start(folder, running)
            placed = settle(folder)

        try:
            await in_thread(lambda: prepared.append(self._lay_out(folder, record, backend)))
            site, given = prepared[0].site, prepared[0].given
            await self._launcher.launch(backend.plan_steps(site), given.listener, commit, given.stderr)
            started = True
            if record.running is not None:
                await backend.wait_ready(placed, site, given, record.running.alive)
        except BaseException:
            for parts in () if started else prepared:  # what runs already is ended by its record
                await asyncio.shield(asyncio.to_thread(self._release, parts.site.uid_slot, parts.site.group))
            raise
        finally:
            for parts in prepared:
                parts.given.close()
        return placed, record

    def destroy(self, gone: Path) -> None:
        """Everything of a sandbox whose folder is in the trash. To be called again after a crash."""
        if (record := SandboxRecord.load(gone)) is not None:
            self.end(record)
        removal.remove(gone)

    def end(self, record: SandboxRecord) -> None:
        """Its processes, mounts, group and ids, of one that is deleted: only its files are left then."""
        if self.host.disk_image and record.running is not None and record.running.alive():
            kind(record.spec).abandon(record.running.pid)
        self._end(record)

    def kill_first_process(self, folder: Path) -> None:
        """Before ``end``, and without waiting for anything."""
        with contextlib.suppress(errors.ProviderUnavailable, OSError):
            record = SandboxRecord.load(folder)
            running = None if record is None else record.running
            if running is not None and running.alive() and (pidfd := running.send_kill()) is not None:
                os.close(pidfd)

    def end_discarded(self, sandbox_id: str, ended: Path | None) -> None:
        """What a delete before ``ended`` put into the trash and could not end: it is not gone while processes live."""
        for gone in self._dirs.discarded(sandbox_id):
            record = None if gone == ended else SandboxRecord.load(gone)
            if record is not None and record.running is not None and record.running.alive():
                self.destroy(gone)

    def reap(self, folder: Path, record: SandboxRecord, *, failed: bool = False) -> None:
        """What is left of processes that have ended, before new ones start on the same disk. ``failed``: its file
        system met an error."""
        self._end(record)
        self._disks.check(folder, thoroughly=failed)

    def halt(self, folder: Path, record: SandboxRecord) -> None:
        """End the processes; the disk waits for the next start. Works on a host without room, too."""
        self._end(record)
        try:
            record.with_running(None).save(folder)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._reserve.release():
                raise
            record.with_running(None).save(folder)

    def clean_up(self, records: Iterable[SandboxRecord]) -> list[Path]:
        """After a crash, and before the first sandbox of this server. Answers folders that only wait to be removed."""
        ended = []
        for path in self._dirs.abandoned():
            self._dirs.discard(path)
        for path in self._dirs.discarded():
            try:
                if (record := SandboxRecord.load(path)) is not None:
                    self.end(record)
                ended.append(path)
            except Exception as error:  # noqa: BLE001 - whatever a sandbox left must not keep the server from starting
                log.warning("the remains of a sandbox could not be ended yet", folder=path.name, problem=str(error))
        running = [record for record in records if record.running is not None]
        if not any(record.running.alive() for record in running if record.running):
            self.templates.remove_unused()
        slots = {one.uid_slot for one in (record.running for record in running) if one and one.uid_slot is not None}
        if self.host.privileged and not self._dirs.unreadable():
            uids.release_stale(self._dirs.root, slots)
        self.host.cgroups.remove_empty({record.reference for record in running} | self._dirs.drafts())
        return ended

    def _lay_out(self, folder: Path, record: SandboxRecord, backend: IsolationBackend) -> SandboxParts:
        """All that is needed before the first process."""
        spec = record.spec
        self._require_mounts(spec)
        template = self.templates.prepare(spec.template_id, folder)
        self._disks.make(folder, spec.resources.disk_mb)
        slot: int | None = None
        group: CgroupHandle | None = None
        try:
            slot = uids.claim(folder) if self.host.privileged else None
            if self.host.cgroups.any:
                group = self.host.cgroups.group(record.reference)
                group.make(backend.limits(spec.resources))
            site = self._site(folder, spec, private_files.give(template, folder), slot, group)
            return SandboxParts(site, backend.prepare_launch(site))
        except BaseException:
            self._release(slot, group)
            raise

    def _require_kernel(self, spec: SandboxSpec) -> None:
        try:
            self.backend(spec)
        except errors.ProviderRefused as refusal:
            level = self.host.level.value
            raise errors.ConfinementUnavailable(
                f"This machine gives isolation level {level!r}, not 'hardened'. {refusal.message}",
                details={"level": level, "asked": IsolationLevel.HARDENED.value},
            ) from refusal
        if spec.egress.mode is EgressMode.FULL:
            raise errors.ConfinementUnavailable(
                "Full egress and the isolation level 'hardened' do not go together: a kernel of its own has no network "
                "but the way through the proxy. Ask for egress 'proxy' or 'none'."
            )
        if spec.mounts:
            raise errors.ConfinementUnavailable(
                "Directories of the host cannot be mounted at the isolation level 'hardened': the process that reads "
                "files for the guest is its root, and could not keep the owners of the host's apart."
            )

    def _require_mounts(self, spec: SandboxSpec) -> None:
        require_mounts(spec, [self._dirs.root], "Paddock's own folder, with every disk,")

    def _site(
        self, folder: Path, spec: SandboxSpec, template: LocalTemplate, slot: int | None, group: CgroupHandle | None
    ) -> LaunchSite:
        full = spec.egress.mode is EgressMode.FULL and self.host.nft is not None
        return LaunchSite(
            stage=self._dirs.stage,
            folder=folder,
            template=template,
            spec=spec,
            agent=self.programs.agent,
            group=group,
            uid_slot=slot,
            disk_image=self.host.disk_image,
            addons=self._addons,
            rules=(self.host.nft, sandbox_egress.rules()) if full and self.host.nft else None,
        )

    def _end(self, record: SandboxRecord) -> None:
        running = record.running
        if running is None:
            return
        if running.boot_id == boot_id():
            kill(running)
            self._release(running.uid_slot, running.group)

    def _release(self, slot: int | None, group: CgroupHandle | None) -> None:
        if group is not None:
            group.remove()
        if slot is not None:
            uids.release(slot)


def kind(spec: SandboxSpec) -> type[IsolationBackend]:
    """A kernel of its own costs much, so only who asks for it gets one."""
    return GvisorBackend if spec.isolation is IsolationLevel.HARDENED else NamespaceBackend


@dataclass(frozen=True, slots=True)
class SandboxParts:
    site: LaunchSite
    given: LaunchResources


def kill(running: RunningProcess) -> None:
    """From outside, with nothing asked of the agent: the first process of its namespace, and its control group. The
    kernel ends all the others with that process, and only then lets it go."""
    pidfd = running.send_kill()
    if pidfd is None:
        _kill_group(running.group)  # what might be left of it
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        deadline = time.monotonic() + _END_SECONDS
        while True:
            # Again and again: another server may be freezing it at this moment, and a frozen process cannot end (v1).
            _kill_group(running.group)
            if poll.poll(_KILL_AGAIN_SECONDS * 1000):
                return
            if time.monotonic() > deadline:
                raise errors.ProviderUnavailable("The processes of a sandbox did not end in time.")
    finally:
        os.close(pidfd)


def _kill_group(group: CgroupHandle | None) -> None:
    if group is not None:
        group.kill()
