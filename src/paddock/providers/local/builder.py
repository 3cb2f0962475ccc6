"""Makes and ends what a sandbox is made of on this host: folder, disk, ids, control group, processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddock import errors
from paddock.addons import shelf
from paddock.disk_space import ReserveFile
from paddock.egress.policy import EgressMode
from paddock.machine.threads import in_thread
from paddock.providers.base import IsolationLevel, SandboxSpec
from paddock.providers.ground import outlet, removal
from paddock.providers.ground.cgroups import Group
from paddock.providers.ground.disk import Disks
from paddock.providers.ground.launch import Born, Launcher
from paddock.providers.ground.programs import Programs
from paddock.providers.ground.record import Record, Running, boot_id
from paddock.providers.ground.seccomp.compiler import program
from paddock.providers.ground.stock import usual
from paddock.providers.ground.yard import Yard
from paddock.providers.local import host as machine
from paddock.providers.local import private_files, uids
from paddock.providers.local.enclosure import Enclosure, Laid, Namespaces
from paddock.providers.local.gvisor import runsc
from paddock.providers.local.gvisor.enclosure import Gvisor
from paddock.providers.local.gvisor.runsc import Wanted
from paddock.providers.local.host import Host
from paddock.providers.local.plan import Site
from paddock.providers.local.template import Template
from paddock.providers.local.templates import Templates

log = structlog.get_logger(__name__)

_END_SECONDS = 10.0
_KILL_AGAIN_SECONDS = 0.2


class Builder:
    """Usable after ``prepare``."""

    host: Host
    templates: Templates
    _disks: Disks
    _launcher: Launcher

    def __init__(
        self,
        yard: Yard,
        reserve: ReserveFile,
        templates: Path,
        addons: Path | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        self._yard = yard
        self._reserve = reserve
        self._wanted = wanted or Wanted()
        self._gvisor: Gvisor | None = None
        self._template_folder = templates
        self._addons = addons
        self.programs = Programs.find()
        self.on_start: Callable[[Path, Running], None] = lambda folder, running: None
        """Told of each sandbox when it is written down, and before anything runs in it."""

    def prepare(self) -> None:
        """Look at the machine. Raises with what to do where it cannot run sandboxes."""
        self._yard.lay_out()
        if self._addons is not None:
            shelf.lay_out(self._addons)
        if (missing := self.programs.problem()) is not None:
            raise errors.ProviderRefused(missing)
        self._launcher = Launcher(self.programs.launcher, program(platform.machine()))
        self.host = machine.look(self._yard.root, self.programs, self._launcher)
        if self.host.problems:
            raise errors.ProviderRefused(" ".join(self.host.problems))
        self._namespaces = Namespaces(self.host)
        self._disks = Disks(self._yard.images, self.host.disk_image)
        self.templates = Templates(self._template_folder, self._yard.made, self.host.privileged)

    def close(self) -> None:
        if hasattr(self, "_launcher"):
            self._launcher.close()
            self.host.cgroups.leave()

    def require(self, spec: SandboxSpec) -> None:
        """What was asked for is given or refused, never less."""
        level = self.host.level
        if kind(spec) is Gvisor:
            self._require_kernel(spec)
        elif spec.isolation is not None and spec.isolation.rank > level.rank:
            raise errors.ConfinementUnavailable(
                f"This machine gives isolation level {level.value!r}, less than the {spec.isolation.value!r} that was "
                "asked for. `paddock doctor` says what is missing.",
                details={"level": level.value, "asked": spec.isolation.value},
            )
        if spec.egress.mode is EgressMode.FULL and self.host.nft is None:
            raise errors.ConfinementUnavailable(
                "Full egress needs the program nft here (Debian: apt install nftables)."
            )
        self._require_mounts(spec)

    def enclosure(self, spec: SandboxSpec) -> Enclosure:
        """Raises where this machine has none such."""
        if kind(spec) is Namespaces:
            return self._namespaces
        if self._gvisor is None:
            self._gvisor = Gvisor(self.host, runsc.find(self._wanted, self.host))
        return self._gvisor

    async def start(self, folder: Path, record: Record, settle: Callable[[Path], Path]) -> tuple[Path, Record]:
        """Start what is in ``folder`` and, once it stands, move it where it belongs. The disk stays in any case."""
        enclosure = self.enclosure(record.spec)
        laid: list[Parts] = []  # by a thread, which goes on to its end when this is cancelled
        placed, started = folder, False

        def commit(born: Born) -> None:
            nonlocal placed, record
            site = laid[0].site
            running = Running(born.pid, born.start_time, boot_id(), site.uid_slot, site.group)
            record = record.with_running(running)
            record.save(folder)
            self.on_start(folder, running)
            placed = settle(folder)

        try:
            await in_thread(lambda: laid.append(self._lay(folder, record, enclosure)))
            site, given = laid[0].site, laid[0].given
            await self._launcher.launch(enclosure.words(site), given.listener, commit, given.complaints)
            started = True
            if record.running is not None:
                await enclosure.arrive(placed, site, given, record.running.alive)
        except BaseException:
            for parts in () if started else laid:  # what runs already is ended by its record
                await asyncio.shield(asyncio.to_thread(self._release, parts.site.uid_slot, parts.site.group))
            raise
        finally:
            for parts in laid:
                parts.given.close()
        return placed, record

    def rename(self, draft: Path, record: Record, yard: Yard) -> Path:
        """Give a machine that runs already a name and its limits."""
        wanted = record.spec.resources
        if record.running is not None and record.running.group is not None and wanted != usual(wanted.disk_mb):
            record.running.group.limit(wanted)
        record.save(draft)
        return yard.settle(draft, record.spec.sandbox_id)

    def destroy(self, gone: Path) -> None:
        """Everything of a sandbox whose folder is in the trash. To be called again after a crash."""
        self.end(gone)
        removal.remove(gone)

    def end(self, gone: Path, known: Record | None = None) -> None:
        """Its processes, mounts, group and ids; only its files are left then, and nobody's.

        ``known``: what was last known of it, for a record that can no longer be read.
        """
        try:
            record = Record.load(gone)
        except errors.ProviderUnavailable:
            if known is None:
                raise
            record = known
        if record is not None:
            if self.host.disk_image and record.running is not None and record.running.alive():
                kind(record.spec).abandon(record.running.pid)
            self._end(record)

    def strike(self, folder: Path) -> None:
        """Kill its first process, and wait for nothing. A first blow, before ``end``."""
        with contextlib.suppress(errors.ProviderUnavailable, OSError):
            record = Record.load(folder)
            running = None if record is None else record.running
            if running is not None and running.alive() and (pidfd := running.send_kill()) is not None:
                os.close(pidfd)

    def end_discarded(self, sandbox_id: str, ended: Path | None) -> None:
        """What a delete before ``ended`` put into the trash and could not end: it is not gone while processes live."""
        for gone in self._yard.discarded(sandbox_id):
            record = None if gone == ended else Record.load(gone)
            if record is not None and record.running is not None and record.running.alive():
                self.destroy(gone)

    def bury(self, folder: Path, record: Record, *, failed: bool = False) -> None:
        """What is left of processes that have ended, before new ones start on the same disk. ``failed``: its file
        system met an error."""
        self._end(record)
        self._disks.check(folder, thoroughly=failed)

    def halt(self, folder: Path, record: Record) -> None:
        """End the processes; the disk waits for the next start. Works on a host without room, too."""
        self._end(record)
        try:
            record.with_running(None).save(folder)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._reserve.release():
                raise
            record.with_running(None).save(folder)

    def clean_up(self, records: Iterable[Record]) -> list[Path]:
        """After a crash, and before the first sandbox of this server. Answers folders that only wait to be removed."""
        ended = []
        for path in self._yard.abandoned():
            self._yard.discard(path)
        for path in self._yard.discarded():
            try:
                self.end(path)
                ended.append(path)
            except Exception as error:  # noqa: BLE001 - whatever a sandbox left must not keep the server from starting
                log.warning("the remains of a sandbox could not be ended yet", folder=path.name, problem=str(error))
        running = [record for record in records if record.running is not None]
        if not any(record.running.alive() for record in running if record.running):
            self.templates.remove_unused()
        slots = {one.uid_slot for one in (record.running for record in running) if one and one.uid_slot is not None}
        if self.host.privileged and not self._yard.unreadable():
            uids.release_stale(self._yard.root, slots)
        self.host.cgroups.remove_empty({record.reference for record in running} | self._yard.drafts())
        return ended

    def _lay(self, folder: Path, record: Record, enclosure: Enclosure) -> Parts:
        """All that is needed before the first process."""
        spec = record.spec
        self._require_mounts(spec)
        template = self.templates.prepare(spec.template_id)
        self._disks.make(folder, spec.resources.disk_mb)
        slot: int | None = None
        group: Group | None = None
        try:
            slot = uids.claim(folder) if self.host.privileged else None
            if self.host.cgroups.any:
                group = self.host.cgroups.group(record.reference)
                group.make(enclosure.limits(spec.resources))
            site = self._site(folder, spec, private_files.give(template, folder), slot, group)
            return Parts(site, enclosure.lay(site))
        except BaseException:
            self._release(slot, group)
            raise

    def _require_kernel(self, spec: SandboxSpec) -> None:
        try:
            self.enclosure(spec)
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
                "Directories of the host cannot be mounted at the isolation level 'hardened': whoever reads files for "
                "the guest is its root, and could not keep the owners of the host's apart."
            )

    def _require_mounts(self, spec: SandboxSpec) -> None:
        """Also when it is started again: the host may have changed meanwhile."""
        for mount in spec.mounts:
            source = Path(mount.source)
            if not source.is_dir():
                raise errors.ConfinementUnavailable(f"There is no directory {mount.source!r} on the host to mount.")
            if source.resolve().is_relative_to(self._yard.root) or self._yard.root.is_relative_to(source.resolve()):
                raise errors.ConfinementUnavailable(
                    f"{mount.source!r} is not for mounting: Paddock's own folder, with every disk, is in it."
                )

    def _site(self, folder: Path, spec: SandboxSpec, template: Template, slot: int | None, group: Group | None) -> Site:
        full = spec.egress.mode is EgressMode.FULL and self.host.nft is not None
        return Site(
            stage=self._yard.stage,
            folder=folder,
            template=template,
            spec=spec,
            agent=self.programs.agent,
            group=group,
            uid_slot=slot,
            disk_image=self.host.disk_image,
            addons=self._addons,
            rules=(self.host.nft, outlet.rules()) if full and self.host.nft else None,
        )

    def _end(self, record: Record) -> None:
        running = record.running
        if running is None:
            return
        if running.boot_id == boot_id():
            kill(running)
            self._release(running.uid_slot, running.group)

    def _release(self, slot: int | None, group: Group | None) -> None:
        if group is not None:
            group.remove()
        if slot is not None:
            uids.release(slot)


def kind(spec: SandboxSpec) -> type[Enclosure]:
    """A kernel of its own costs much, so only who asks for it gets one."""
    return Gvisor if spec.isolation is IsolationLevel.HARDENED else Namespaces


@dataclass(frozen=True, slots=True)
class Parts:
    site: Site
    given: Laid


def kill(running: Running) -> None:
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
            # Again and again: another server may be freezing it at this moment, and who is frozen cannot die (v1).
            _kill_group(running.group)
            if poll.poll(_KILL_AGAIN_SECONDS * 1000):
                return
            if time.monotonic() > deadline:
                raise errors.ProviderUnavailable("The processes of a sandbox did not end in time.")
    finally:
        os.close(pidfd)


def _kill_group(group: Group | None) -> None:
    if group is not None:
        group.kill()
