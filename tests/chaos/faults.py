"""Faults among the kills: servers that stand still, agents that are killed, disks of sandboxes that fail, disks without
a byte or an inode left, read-only databases, a clock that is set. One at a time, each undone after a moment.

A database that is damaged is no fault among the others: nothing goes on with it (see ``test_damaged_database``).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx

from paddock import errors
from paddock.providers.common.record import SandboxRecord
from tests.chaos.clock import HOUR, SharedClock
from tests.chaos.slot import Slot
from tests.chaos.timeline import Spans
from tests.docker import engine
from tests.support.small_disk import SmallDisk

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
_NAMING_PARTS = 3
"""``sandboxes/<id>/disk.img`` names one sandbox of all on this machine."""
_MAX_HOURS = 2
_MAX_SUCCESSES_BETWEEN = 10
_MAX_PAUSE_S = 3.0
_TOLD_S = 8.0
"""So soon a server says that it is not well: it looks once a second, and asks its database once a second."""
_TOLD = "and a server said so"


@dataclass
class Faults:
    slots: list[Slot]
    rng: random.Random
    clock: SharedClock
    disk: SmallDisk | None
    """That of the servers' home, where the test may mount one."""
    read_only: Callable[[], AbstractAsyncContextManager[None]] | None
    """Makes the database read-only meanwhile."""
    successes: Callable[[], int]
    """How many requests were answered with success until now."""
    sets_clock: bool
    keeps_time: bool
    """The servers move what is theirs when the clock is set."""
    at_rest: Callable[[], AbstractAsyncContextManager[None]]
    """Meanwhile no client changes anything: where servers follow the clock one after the other, one may write the new
    time about a sandbox of another that has the old one yet."""
    server_ttl: float
    machines: str | None
    """The provider, where its sandboxes are real."""
    done: Counter[str] = field(default_factory=Counter)
    hampered: bool = False
    """A server that starts now may have to give up, and say why."""
    troubles: Spans = field(default_factory=Spans)
    """When it was so."""
    harmed: set[str] = field(default_factory=set)
    """Sandboxes that lost their processes."""
    untold: list[str] = field(default_factory=list)
    """Faults of which a server that lived through them said nothing."""

    @property
    def total(self) -> int:
        return sum(self.done[name] for name in self._kinds())

    def count(self) -> dict[str, int]:
        """Of each kind that can happen here, how many did."""
        return dict.fromkeys(self._kinds(), 0) | dict(self.done)

    async def inject(self, stop: asyncio.Event) -> None:
        """One after the other, until told to stop."""
        faults = self._kinds()
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

    def _kinds(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        faults: dict[str, Callable[[], Awaitable[bool]]] = {"a server stands still": self._stand_still}
        if self.machines is not None:
            faults["an agent is killed"] = self._kill_some_agent
        if self.machines == "local":
            faults["the disk of a sandbox fails"] = self._fail_disk
        if self.sets_clock:
            faults["the clock is set"] = self._set_clock
        if self.disk is not None:
            full, crowded = self.disk.fill, self.disk.fill_inodes
            faults["the disk is full"] = lambda: self._hamper("the disk is full", self._crowded(full), "/ready")
            faults["no inode is free"] = lambda: self._hamper("no inode is free", self._crowded(crowded), "/ready")
        if self.read_only is not None:
            name, read_only = "the database is read-only", self.read_only
            faults[name] = lambda: self._hamper(name, read_only(), "/health")
        return faults

    async def _stand_still(self) -> bool:
        slot = self.rng.choice(self.slots)
        if (pid := slot.pid) is None:
            return False
        with contextlib.suppress(ProcessLookupError), slot.stood_still.during():  # it dies by itself
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            os.kill(pid, signal.SIGCONT)
        return True

    async def _kill_some_agent(self) -> bool:
        with contextlib.suppress(errors.PaddockError, OSError):  # it goes in this moment
            record = self._some()
            return record is not None and await self._kill_agent(record)
        return False

    async def kill_agent_of(self, sandbox_id: str) -> bool:
        """As the host's memory killer or an operator would. False: nothing of it runs."""
        assert self.machines is not None
        found = [folder for folder in self._folders() if folder.name == sandbox_id]
        record = SandboxRecord.load(found[0]) if found else None
        if record is None or not await self._kill_agent(record):
            return False
        self.done["an agent is killed"] += 1
        return True

    async def _kill_agent(self, record: SandboxRecord) -> bool:
        if self.machines == "docker":
            killed = await asyncio.to_thread(engine.call, "POST", f"/containers/{record.reference}/kill")
            if killed.status_code != 204:
                return False
        elif record.running is None or (pidfd := record.running.send_kill()) is None:
            return False
        else:
            os.close(pidfd)
        self.harmed.add(record.spec.sandbox_id)
        return True

    async def _fail_disk(self) -> bool:
        """Of a local sandbox: its file system is read-only from now on, until somebody repairs it."""
        with contextlib.suppress(errors.PaddockError, OSError):
            record = self._some()
            if record is None or (device := _mounted_as(self._folder(record) / "disk.img")) is None:
                return False
            self.harmed.add(record.spec.sandbox_id)  # its processes end when it is repaired
            Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("as if a write had failed")
            return True
        return False

    def _some(self) -> SandboxRecord | None:
        folders = self._folders()
        return SandboxRecord.load(self.rng.choice(folders)) if folders else None

    def _folders(self) -> list[Path]:
        """Of all sandboxes."""
        assert self.machines is not None
        homes = sorted({slot.home for slot in self.slots})
        return [folder for home in homes for folder in (home / self.machines / "sandboxes").glob("*")]

    def _folder(self, record: SandboxRecord) -> Path:
        return next(folder for folder in self._folders() if folder.name == record.spec.sandbox_id)

    async def set_clock(self) -> None:
        self.done["the clock is set"] += await self._set_clock()

    async def _set_clock(self) -> bool:
        """By hours, ahead or back. Where servers move what is theirs it is waited for until all go by the new time."""
        hours = self.rng.choice([-1, 1]) + self.clock.offset / HOUR
        if abs(hours) > _MAX_HOURS:
            hours = 0
        if not self.keeps_time:
            self.clock.set_offset(hours * HOUR)
            return True
        several = len(self.slots) > 1
        async with self.at_rest() if several else contextlib.nullcontext(), self.clock.steady:
            # One whose predecessor may live yet, as far as it knows, moves nothing.
            while several and any(slot.alive and slot.served.lasted() < 2 * self.server_ttl for slot in self.slots):
                await asyncio.sleep(0.05)
            if not all(slot.alive for slot in self.slots):
                return False
            before = self.clock.offset
            for offset in (hours * HOUR, before):
                self.clock.set_offset(offset)
                followed = [
                    await self.clock.until_followed(slot.place.number, lambda: slot.alive)  # noqa: B023
                    for slot in self.slots
                ]
                if all(followed):
                    return True
        return False  # one died in the moment before

    async def _hamper(self, name: str, trouble: AbstractAsyncContextManager[None], path: str) -> bool:
        self.hampered = True
        try:
            with self.troubles.during():
                async with trouble:
                    await asyncio.gather(
                        asyncio.sleep(self.rng.uniform(0.2, 1.0)), self._told(name, self.rng.choice(self.slots), path)
                    )
        finally:
            self.hampered = False
        return True

    async def _told(self, name: str, slot: Slot, path: str) -> None:
        """A server that lives long enough says there that it is not well."""
        pid, until = slot.pid, time.monotonic() + _TOLD_S
        if pid is None or not slot.serves:
            return
        with contextlib.suppress(httpx.TransportError):  # it has died
            async with httpx.AsyncClient(base_url=slot.url, timeout=_TOLD_S, verify=False) as client:
                while slot.pid == pid:
                    if (await client.get(path)).status_code == 503:
                        self.done[f"{name}, {_TOLD}"] += 1
                        return
                    if time.monotonic() > until:
                        self.untold.append(f"{name}, and GET {path} answered 200 for {_TOLD_S} s")
                        return
                    await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _crowded(self, fill: Callable[[], None]) -> AsyncIterator[None]:
        assert self.disk is not None
        try:
            await asyncio.to_thread(fill)
            yield
        finally:
            await asyncio.to_thread(self.disk.empty)


def _mounted_as(image: Path) -> str | None:
    """The loop device that has this file. Its path is that of the sandbox's own mounts: the end of ours."""
    end = "/" + "/".join(image.parts[-_NAMING_PARTS:])
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if backing.read_text().strip().endswith(end):
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
