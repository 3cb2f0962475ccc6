"""Faults among the kills: servers that stand still, agents that are killed, disks of sandboxes that fail, full disks,
read-only databases, a clock that is set. One at a time, each undone after a moment."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from paddock import errors
from paddock.providers.common.record import SandboxRecord
from tests.chaos.clock import HOUR, SharedClock
from tests.chaos.slot import Slot
from tests.chaos.timeline import Spans
from tests.support.small_disk import SmallDisk

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
_MAX_HOURS = 2
_MAX_SUCCESSES_BETWEEN = 10
_MAX_PAUSE_S = 3.0


@dataclass
class Faults:
    slots: list[Slot]
    home: Path
    rng: random.Random
    clock: SharedClock
    disk: SmallDisk | None
    """That of the servers' home, where the test may mount one."""
    read_only: Callable[[], AbstractAsyncContextManager[None]] | None
    """Makes the database read-only meanwhile."""
    successes: Callable[[], int]
    """How many requests were answered with success until now."""
    sets_clock: bool
    done: Counter[str] = field(default_factory=Counter)
    hampered: bool = False
    """A server that starts now may have to give up, and say why."""
    troubles: Spans = field(default_factory=Spans)
    """When it was so."""
    harmed: set[str] = field(default_factory=set)
    """Sandboxes that lost their processes."""

    async def inject(self, stop: asyncio.Event) -> None:
        """One after the other, until told to stop."""
        faults: dict[str, Callable[[], Awaitable[bool]]] = {
            "a server stands still": self._stand_still,
            "an agent is killed": self._kill_agent,
            "the disk of a sandbox fails": self._fail_disk,
        }
        if self.sets_clock:
            faults["the clock is set"] = self._set_clock
        if self.disk is not None:
            faults["the disk is full"] = lambda: self._hamper(self._full_disk())
        if self.read_only is not None:
            read_only = self.read_only
            faults["the database is read-only"] = lambda: self._hamper(read_only())
        while not stop.is_set():
            name = self.rng.choice(list(faults))
            if await faults[name]():
                self.done[name] += 1
            enough = self.successes() + self.rng.randint(0, _MAX_SUCCESSES_BETWEEN)
            await _pause(stop, self.rng.uniform(0.1, 0.6))
            with contextlib.suppress(TimeoutError):  # or nothing would ever be done between two faults on slow machines
                async with asyncio.timeout(_MAX_PAUSE_S):
                    while self.successes() < enough and not stop.is_set():
                        await _pause(stop, 0.05)

    async def _stand_still(self) -> bool:
        slot = self.rng.choice(self.slots)
        if (pid := slot.pid) is None:
            return False
        with contextlib.suppress(ProcessLookupError), slot.stood_still.during():  # it dies by itself
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            os.kill(pid, signal.SIGCONT)
        return True

    async def _kill_agent(self) -> bool:
        """Of a local sandbox, as the host's memory killer or an operator would."""
        with contextlib.suppress(errors.PaddockError, OSError):  # it goes in this moment
            record = self._some_local()
            if record is not None and record.running is not None and (pidfd := record.running.send_kill()) is not None:
                os.close(pidfd)
                self.harmed.add(record.spec.sandbox_id)
                return True
        return False

    async def _fail_disk(self) -> bool:
        """Of a local sandbox: its file system is read-only from now on, until somebody repairs it."""
        with contextlib.suppress(errors.PaddockError, OSError):
            record = self._some_local()
            image = None if record is None else self.home / "local/sandboxes" / record.spec.sandbox_id / "disk.img"
            if record is None or image is None or (device := _mounted_as(image)) is None:
                return False
            self.harmed.add(record.spec.sandbox_id)  # its processes end when it is repaired
            Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("as if a write had failed")
            return True
        return False

    def _some_local(self) -> SandboxRecord | None:
        folders = list((self.home / "local" / "sandboxes").glob("*"))
        return SandboxRecord.load(self.rng.choice(folders)) if folders else None

    async def _set_clock(self) -> bool:
        """By hours, ahead or back. Of one server it is waited for until it goes by the new time."""
        hours = self.rng.choice([-1, 1]) + self.clock.offset / HOUR
        if abs(hours) > _MAX_HOURS:
            hours = 0
        alone = len(self.slots) == 1
        async with self.clock.steady if alone else contextlib.nullcontext():
            if alone and not self.slots[0].alive:
                return False
            before = self.clock.offset
            self.clock.set_offset(hours * HOUR)
            if alone and not await self.clock.until_followed(self.slots[0].place.number, lambda: self.slots[0].alive):
                self.clock.set_offset(before)  # it died in the moment before
                return False
        return True

    async def _hamper(self, trouble: AbstractAsyncContextManager[None]) -> bool:
        self.hampered = True
        try:
            with self.troubles.during():
                async with trouble:
                    await asyncio.sleep(self.rng.uniform(0.2, 1.0))
        finally:
            self.hampered = False
        return True

    @asynccontextmanager
    async def _full_disk(self) -> AsyncIterator[None]:
        assert self.disk is not None
        try:
            await asyncio.to_thread(self.disk.fill)
            yield
        finally:
            await asyncio.to_thread(self.disk.empty)


def _mounted_as(image: Path) -> str | None:
    """The loop device that has this file."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if backing.read_text().strip() == str(image.resolve()):
                return backing.parts[3]
    return None


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


@asynccontextmanager
async def read_only_sqlite(database: Path) -> AsyncIterator[None]:
    """The files of the database cannot be written by anybody, not even by those who have opened them."""
    family = [database, database.with_name(database.name + "-wal")]
    try:
        for file in family:
            _set_immutable(file, True)
        yield
    finally:
        for file in family:
            _set_immutable(file, False)


@asynccontextmanager
async def read_only_postgres(url: str) -> AsyncIterator[None]:
    """As when a server is connected to a standby."""
    name = url.rpartition("/")[2]
    admin = await asyncpg.connect(url.removesuffix(name) + "postgres")

    async def switch(value: str) -> None:
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)

    try:
        await switch("on")
        yield
    finally:
        await switch("off")
        await admin.close()


def _set_immutable(file: Path, immutable: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            flags = array.array("L", [0])
            fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags, True)
            flags[0] = flags[0] | _IMMUTABLE if immutable else flags[0] & ~_IMMUTABLE
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, flags, True)
        finally:
            os.close(descriptor)
