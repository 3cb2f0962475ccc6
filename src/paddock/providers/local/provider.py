"""The local provider: sandboxes on this machine, with nothing but the kernel. Every step is safe to repeat."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import structlog

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.addresses import Reach
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.outward import Outward
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.egress.resolve import HostResolver
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import (
    Found,
    InsideService,
    IsolationReport,
    MachineState,
    Notice,
    SandboxSpec,
    Shape,
    Storage,
)
from paddock.providers.ground import capacity, removal
from paddock.providers.ground.chores import Chores
from paddock.providers.ground.outlet import Outlet
from paddock.providers.ground.record import RECORD, Record
from paddock.providers.ground.stock import Stock, anonymous
from paddock.providers.ground.yard import AlreadyThere, Yard
from paddock.providers.local.builder import Builder, kind
from paddock.providers.local.enclosure import Namespaces
from paddock.providers.local.gvisor.runsc import Wanted
from paddock.providers.local.home_watcher import HomeWatcher
from paddock.providers.local.living import AgentSilent, Living
from paddock.providers.local.space import DiskPolicy, Space
from paddock.providers.local.watch import Watch
from paddock.settings import Settings

log = structlog.get_logger(__name__)

_FIND_AGAIN_SECONDS = 10.0  # for an agent to answer a server that starts; else it is taken up by its next use
_TAKEN_UP_AT_ONCE = 32


class LocalProvider(capacity.OnThisHost):
    name = "local"

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        *,
        templates: Path | None = None,
        made: Path | None = None,
        addons: Path | None = None,
        reachable: Sequence[str] = (),
        output: OutputLimits | None = None,
        runsc: Wanted | None = None,
        disks: DiskPolicy | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._output = output or OutputLimits()
        self._reach = Reach(reachable=reachable)
        self._resolver = HostResolver()
        self._bandwidths = Bandwidths()
        self._yard = Yard(root.absolute(), made)
        self._stock: Stock[Living] = Stock()
        self._living: dict[str, Living] = {}
        self._space = Space(
            self._yard.root, disks or DiskPolicy(), lambda: (*self._living.values(), *self._stock.machines())
        )
        templates = templates or root.absolute().parent / "templates"
        self._builder = Builder(self._yard, self._space.reserve, templates, addons, runsc)
        self._home_watcher = HomeWatcher(self._yard.root, self._builder.programs.launcher, self._held)
        self._builder.on_start = self._home_watcher.add
        self._turns: dict[str, asyncio.Lock] = {}
        self._chores = Chores()
        self._inside: InsideService | None = None
        self._watch = Watch(self._living.values)
        self._taking_up: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> Self:
        home = settings.home.absolute()
        runsc = Wanted(settings.runsc, settings.runsc_platform)
        return cls(
            home / "local",
            clock,
            addons=home / "addons",
            reachable=settings.egress_reachable,
            runsc=runsc,
            output=OutputLimits(settings.output_spool, settings.stall_timeout),
            disks=DiskPolicy(settings.disk_reserve_mb, settings.disk_overcommit),
        )

    async def start(self) -> None:
        """Look at the machine, finish what a crash cut short, and take up every sandbox that lives."""
        await asyncio.to_thread(self._builder.prepare)
        records = await asyncio.to_thread(lambda: list(self._yard.sandboxes()))
        warm = await asyncio.to_thread(lambda: list(self._yard.warm()))
        gone = await asyncio.to_thread(self._builder.clean_up, [record for _, record in (*records, *warm)])
        for folder in gone:  # with as many files as a sandbox liked: nobody waits for that
            self._chores.add(asyncio.to_thread(removal.remove, folder))
        found = [living for folder, record in records if (living := self._find_again(folder, record)) is not None]
        self._home_watcher.start()
        for folder, record in warm:
            self._home_watcher.add(folder, record.running)
        self._taking_up = asyncio.create_task(self._take_up_all(found, warm))
        self._watch.start(
            self._builder.host,
            self._builder.templates,
            lambda: self._space.keep(self._repair, lambda: self._watch.notice),
        )

    async def close(self) -> None:
        await self._watch.close()
        self._home_watcher.close()
        if self._taking_up is not None:
            self._taking_up.cancel()
            await asyncio.gather(self._taking_up, return_exceptions=True)
        living = list(self._living.values())
        self._living.clear()
        for one in (*living, *self._stock.clear()):
            await one.let_go()
        await self._chores.finish()
        self._resolver.close()
        await asyncio.to_thread(self._builder.close)

    async def templates(self) -> list[str]:
        return self._builder.templates.names()

    async def create(self, spec: SandboxSpec) -> Found:
        async with self._turn(spec.sandbox_id):
            record = Record.load(self._yard.folder(spec.sandbox_id)) if self._yard.has(spec.sandbox_id) else None
            if record is not None:
                return await self._again(record)
            self._builder.require(spec)
            self._space.admit(spec.resources.disk_mb)
            with _host_disk_full():
                living = await self._claim(spec) or await self._make(spec)
            return living.record.found(MachineState.RUNNING)

    async def inspect(self, sandbox_id: str) -> Found | None:
        try:
            record = Record.load(self._yard.folder(sandbox_id))
        except errors.SandboxNotFound:
            return None
        return record.found() if record else None

    async def list(self) -> list[Found]:
        return await asyncio.to_thread(lambda: [record.found() for _, record in self._yard.sandboxes()])

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._turn(sandbox_id):
            record = self._known(sandbox_id)
            if not keep_memory:
                await self._halt(record)
                return
            living = self._living.get(sandbox_id)
            if living is None and record.running is not None and record.running.alive():
                living = await self._adopt(self._yard.folder(sandbox_id), record, answering=False)
            if living is None or not living.alive():
                return  # files only: that is what paused means
            try:
                await living.freeze(by_group=self._builder.host.cgroups.freezer is not None)
            except AgentSilent as error:
                # What cannot be stopped by asking is ended from outside: nobody's code may run on for ever.
                log.warning("paused by its files alone", sandbox_id=sandbox_id, problem=error.message)
                await self._halt(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._turn(sandbox_id):
            living = self._living.get(sandbox_id)
            if living is None or not living.alive():
                await self._restart(self._known(sandbox_id))
            else:
                await living.thaw()
                await self._space.wake()

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._yard.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        self._builder.strike(folder)  # whoever has its turn, and waits for its agent, hears of its end at once
        async with self._turn(sandbox_id):
            if (living := self._living.pop(sandbox_id, None)) is not None:
                living.delete()
            try:  # its processes first, and from outside: nothing that is asked of the agent may come before
                gone = await self._discard(folder, living.record if living is not None else None)
                await asyncio.to_thread(self._builder.end_discarded, sandbox_id, gone)
            finally:
                if living is not None:
                    await living.let_go()
        self._turns.pop(sandbox_id, None)

    def at_hand(self, sandbox_id: str) -> Machine | None:
        living = self._living.get(sandbox_id)
        return None if living is None or living.paused or not living.alive() else living.machine

    async def attach(self, sandbox_id: str) -> Machine:
        living = self._living.get(sandbox_id)
        if living is None or not living.alive():
            living = await self._revive(sandbox_id)
        if living.paused:
            raise errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
        return living.machine

    async def storage(self) -> Storage:
        return await asyncio.to_thread(self._space.storage)

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        return self._builder.enclosure(self._known(sandbox_id).spec).report()

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
        record, living = self._known(sandbox_id), self._living.get(sandbox_id)
        return living.outlet.report() if living else self._outlet(record).report()

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> Outward:
        living = self._living.get(sandbox_id) or await self._revive(sandbox_id)
        return await living.outlet.connect(host, port, seconds)

    def answer_inside(self, service: InsideService) -> bool:
        self._inside = service
        return True

    def tell(self, notice: Notice) -> None:
        self._watch.notice = notice

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:
        self._bandwidths = bandwidths

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        plain = not spec.mounts and spec.egress.mode is not EgressMode.FULL and kind(spec) is Namespaces
        adjusts = plain and self._builder.host.adjusts(spec.resources)
        return Shape(spec.template_id, spec.resources.disk_mb) if adjusts else None

    async def warm(self, shape: Shape) -> None:
        self._space.admit(shape.disk_mb)
        draft = self._yard.draft()
        record = Record(anonymous(shape), self._clock.now(), draft.name)
        try:
            folder, record = await self._builder.start(draft, record, self._yard.put_warm)
        except BaseException:
            await asyncio.shield(self._drop(draft, None))
            raise
        living = self._hold(folder, record)
        try:
            if not living.watch(self._warm_lost):
                raise errors.ProviderUnavailable("A machine made in advance ended at once.")
            await living.prepare()
        except BaseException:
            await asyncio.shield(self._drop(folder, living))
            raise
        self._stock.add(folder, record, living)
        await self._space.share_out()

    async def warmed(self) -> Mapping[Shape, int]:
        """After all that were there at the start are found, or one would make too many."""
        if self._taking_up is not None:
            await asyncio.wait({self._taking_up})
        return self._stock.counts()

    async def cool(self, shape: Shape, count: int) -> None:
        while count > 0 and (taken := self._stock.take(shape)) is not None:
            await self._drop(taken[0], taken[2])
            count -= 1

    # How one comes to live

    async def _again(self, record: Record) -> Found:
        """A create that was cut short after its record was written: it must run in the end."""
        living = self._living.get(record.spec.sandbox_id)
        if living is None or not living.alive():
            living = await self._adopt_or_restart(record)
        return living.record.found()

    async def _adopt_or_restart(self, record: Record) -> Living:
        if record.running is not None and record.running.alive():
            return await self._adopt(self._yard.folder(record.spec.sandbox_id), record)
        return await self._restart(record)

    async def _make(self, spec: SandboxSpec) -> Living:
        draft = self._yard.draft()
        record = Record(spec, self._clock.now(), draft.name)
        try:
            folder, record = await self._builder.start(
                draft, record, lambda made: self._yard.settle(made, spec.sandbox_id)
            )
        except AlreadyThere:
            await self._drop(draft, None)
            return await self._adopt_or_restart(self._known(spec.sandbox_id))
        except BaseException:
            await asyncio.shield(self._drop(draft if draft.exists() else self._yard.folder(spec.sandbox_id), None))
            raise
        return await self._take_up_limited(folder, record)

    async def _claim(self, spec: SandboxSpec) -> Living | None:
        """A machine made in advance gets its name, its limits and its way out."""
        shape = self.shape_of(spec)
        while shape is not None and (taken := self._stock.take(shape)) is not None:
            folder, record, living = taken
            usable = living is not None and living.alive() and not living.disk_failed()
            if (
                living is None
                or not usable
                or self._is_outdated(folder, record)
                or (draft := self._yard.take_warm(folder)) is None
            ):
                await self._drop(folder, living)
                continue
            record = replace(record, spec=spec, created_at=self._clock.now())
            try:
                folder = self._builder.rename(draft, record, self._yard)  # shorter than a way to a thread and back
            except AlreadyThere:
                await self._drop(draft, living)
                return await self._adopt_or_restart(self._known(spec.sandbox_id))
            except BaseException:
                made = draft if draft.exists() else self._yard.folder(spec.sandbox_id)
                await asyncio.shield(self._drop(made, living))
                raise
            living.be(folder, record, self._bandwidths.of(spec.owner_id))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._take_up(living)
            if living.alive():
                await self._space.wake()
                return living
            self._living.pop(spec.sandbox_id, None)  # it ended in this moment, with nothing of anybody's in it
            await self._drop(folder, living)
        return None

    def _is_outdated(self, folder: Path, record: Record) -> bool:
        try:
            made_at = (folder / RECORD).stat().st_mtime
        except OSError:
            return True
        return self._builder.templates.is_outdated(record.spec.template_id, made_at)

    async def _drop(self, folder: Path, living: Living | None) -> None:
        if living is not None:
            await living.let_go()
        await self._discard(folder)

    async def _discard(self, folder: Path, known: Record | None = None) -> Path | None:
        """Ended when this returns. Removing the files can take longer, and nobody needs to wait for that."""
        if (gone := self._yard.discard(folder)) is not None:
            await asyncio.to_thread(self._builder.end, gone, known)
            self._chores.add(asyncio.to_thread(removal.remove, gone))
        return gone

    async def _repair(self, living: Living) -> bool:
        """Of one whose file system failed: check it, and start afresh. False where it is not there any more."""
        if self._stock.has(living):
            self._warm_lost(living)
            return False
        sandbox_id = living.record.spec.sandbox_id
        async with self._turn(sandbox_id):
            if self._living.get(sandbox_id) is not living or not living.disk_failed():
                return False
            if not living.paused:
                await self._restart(living.record, failed=True)
                return True
            await self._halt(living.record)
            await asyncio.to_thread(self._builder.bury, living.folder, living.record.with_running(None), failed=True)
            return True

    async def _restart(self, record: Record, *, failed: bool = False) -> Living:
        """Its processes are gone (a reboot, or somebody ended them); its files are not. ``failed``: its file system
        met an error, and its processes may be there yet."""
        folder = self._yard.folder(record.spec.sandbox_id)
        if (old := self._living.pop(record.spec.sandbox_id, None)) is not None:
            await old.let_go()
        await asyncio.to_thread(self._builder.bury, folder, record, failed=failed)
        folder, record = await self._builder.start(folder, record.with_running(None), lambda made: made)
        try:
            living = await self._take_up_limited(folder, record)
            await living.machine.usage()
        except errors.ProviderTimeout:
            raise
        except errors.ProviderUnavailable:
            await asyncio.to_thread(self._builder.bury, folder, record)
            raise errors.ProviderRefused("It ends at once: what is on its disk keeps it from running.") from None
        return living

    async def _halt(self, record: Record) -> None:
        """End its processes and keep its files, written down so that nobody takes it for one that crashed."""
        if (living := self._living.pop(record.spec.sandbox_id, None)) is not None:
            await living.let_go()
        await asyncio.to_thread(self._builder.halt, self._yard.folder(record.spec.sandbox_id), record)

    async def _adopt(self, folder: Path, record: Record, *, answering: bool = True) -> Living:
        living = self._hold(folder, record)
        living.paused = record.state() is MachineState.PAUSED
        return await self._take_up(living, answering=answering)

    async def _revive(self, sandbox_id: str) -> Living:
        async with self._turn(sandbox_id):
            living = self._living.get(sandbox_id)
            if living is not None and living.alive():
                return living
            record = self._known(sandbox_id)
            if record.running is not None and record.running.alive():
                return await self._adopt(self._yard.folder(sandbox_id), record)
            if record.running is None or record.running.stopped:
                raise errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
            log.warning("sandbox had ended by itself; starting it again from its files", sandbox_id=sandbox_id)
            return await self._restart(record)

    async def _take_up(self, living: Living, *, answering: bool = True) -> Living:
        """``answering=False``: nothing is asked of its agent, which may not answer any more."""
        sandbox_id = living.record.spec.sandbox_id
        self._living[sandbox_id] = living
        try:
            if living.watch(self._lost) and answering and not living.paused:
                await living.open()
        except BaseException:  # to be taken up whole by whoever asks next
            self._living.pop(sandbox_id, None)
            await asyncio.shield(living.let_go())
            raise
        return living

    async def _take_up_limited(self, folder: Path, record: Record) -> Living:
        """One that has just been started: its share of the host's disk is set before anybody can use it."""
        living = await self._take_up(self._hold(folder, record))
        await self._space.share_out()
        return living

    def _find_again(self, folder: Path, record: Record) -> Living | None:
        """One that lives, of an earlier server. Nothing is asked of its agent yet: there may be hundreds."""
        if record.running is None or not record.running.alive():
            return None
        living = self._hold(folder, record)
        living.paused = record.state() is MachineState.PAUSED
        if not living.watch(self._lost):
            return None
        self._living[record.spec.sandbox_id] = living
        return living

    async def _take_up_all(self, found: Sequence[Living], warm: Sequence[tuple[Path, Record]]) -> None:
        """While others are served already: their ways out, and what stands ready."""
        places = asyncio.Semaphore(_TAKEN_UP_AT_ONCE)

        async def each(work: Callable[..., Awaitable[None]], *given: Any) -> None:
            async with places:
                await work(*given)

        await asyncio.gather(*(each(self._open_again, living) for living in found))
        if warm:  # made by another server, which may not have seen what has become private since
            await asyncio.to_thread(self._builder.templates.hide_private_files)
        await asyncio.gather(*(each(self._restock, folder, record) for folder, record in warm))

    async def _open_again(self, living: Living) -> None:
        sandbox_id = living.record.spec.sandbox_id
        if living.paused or living.deleted:
            return
        try:
            async with asyncio.timeout(_FIND_AGAIN_SECONDS):
                await living.open()
        except (errors.PaddockError, OSError) as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=sandbox_id, problem=str(error))
            if self._living.get(sandbox_id) is living:  # to be taken up whole by whoever asks next
                del self._living[sandbox_id]
                await living.let_go()

    async def _restock(self, folder: Path, record: Record) -> None:
        """Made in advance by a server before this one, or beside it."""
        living = self._hold(folder, record)
        try:
            if living.watch(self._warm_lost):
                await living.prepare()
                self._stock.add(folder, record, living)
                return
        except (errors.PaddockError, OSError) as error:
            log.warning("a machine made in advance does not answer", problem=str(error))
        await self._drop(folder, living)

    def _held(self) -> Sequence[tuple[Path, Record]]:
        return [(one.folder, one.record) for one in (*self._living.values(), *self._stock.machines())]

    def _warm_lost(self, living: Living) -> None:
        self._stock.lost(living)
        self._chores.add(self._drop(living.folder, living))

    def _lost(self, living: Living) -> None:
        self._chores.add(self._watch.crashed(living))

    def _hold(self, folder: Path, record: Record) -> Living:
        enclosure = kind(record.spec)
        return Living(folder, record, self._clock, self._outlet(record), self._output, enclosure, self._inside)

    def _outlet(self, record: Record) -> Outlet:
        return Outlet(record.spec.egress, self._reach, self._resolver, self._bandwidths.of(record.spec.owner_id))

    def _known(self, sandbox_id: str) -> Record:
        record = Record.load(self._yard.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    def _turn(self, sandbox_id: str) -> asyncio.Lock:
        return self._turns.setdefault(sandbox_id, asyncio.Lock())


@contextlib.contextmanager
def _host_disk_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise errors.HostDiskFull("The host's disk is full. Delete sandboxes, or make room on the host.") from error
