"""Room on the host for the disks of sandboxes, which are promised more together than there is.

An image takes blocks of the host as it is written to. A write that the host has no block for breaks the file system in
the image, and not of the one that took the last block. So no image may ever need more than is there: what each may
still use (``MountedDisk.keep_back``) is at any moment so little that all of them together leave the host's reserve
alone. Where there is room for all that was promised none is limited. Where there is not, each gets a share, one that is
written to a larger one, and shares are set anew many times a second. A server that is slow, or has ended, makes shares
last longer and never the sum larger.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from paddock import errors
from paddock.disk_space import MIB, ReserveFile, reserve_bytes, room, shortage
from paddock.providers.base import Notice, Storage
from paddock.providers.common.mounted_disk import MountedDisk
from paddock.providers.local.handle import LocalHandle

log = structlog.get_logger(__name__)

_LOOK_S = 1.0
_TIGHT_LOOK_S = 0.1
_CPU_SHARE = 0.05
"""Of one processor, at most, for looking; but while somebody comes to the end of a share that can grow, this often:"""
_NEEDS_MORE_LOOK_S = 0.3
_NEEDS_MORE_BYTES = 16 << 20
"""What is left of a share that its owner may use up before the next look."""
_AMPLE_BYTES = 1 << 30
"""A share that nobody uses up between two looks."""
_GROWING_WEIGHT, _USUAL_WEIGHT, _RESTING_WEIGHT = 32, 4, 1
"""Of one that writes, of one that could begin to at any moment, of one that is paused or not assigned yet."""
_START_BYTES = 16 << 20
"""What a new sandbox needs at least, besides the tables of its disk; and what each may use before any gets more."""
_TABLES_SHARE = 0.03
_REPAIR_AGAIN_S = 60.0
_REMEDY = "Delete sandboxes, or make room on the host."

_Mount = tuple[str, int]
"""A disk as it is mounted now: its sandbox's reference and first process. After a restart nothing of it is limited."""


@dataclass(frozen=True, slots=True)
class DiskPolicy:
    reserve_mb: int = 0
    """Of the host's disk, which stay free. 0: a twentieth of it, 1 GiB at most."""
    overcommit: float = 0
    """How much more may be promised than there is. 0: any."""


class DiskAllocator:
    def __init__(self, root: Path, policy: DiskPolicy, disks: Callable[[], Iterable[LocalHandle]]) -> None:
        self.reserve = ReserveFile(root / "reserve")
        self._root = root
        self._policy = policy
        self._disks = disks
        self._sharing = threading.Lock()
        self._free: dict[_Mount, int] = {}
        self._kept_back: dict[_Mount, int] = {}
        self._refused = False
        self.needs_more = False
        """Some disk had nearly used up its share, and there was more to give."""
        self._free_before: dict[_Mount, int] = {}
        """Of each since shares were last needed: who has taken much since then has no claim before the others."""
        self._owed = 0
        """And what is set aside for those who have taken little."""
        self._limited = True  # by a server before this one, perhaps
        self._failed: dict[str, float] = {}
        """Since when a sandbox's disk has failed, and was tried to repair last."""

    def admit(self, disk_mb: int) -> None:
        """Refuse a new sandbox that there is no room for. Some small system calls."""
        if (short := self.shortage()) is not None:
            raise errors.HostDiskFull(f"{short} {_REMEDY}")
        found, wanted = room(self._root), disk_mb * MIB
        available = found.free - reserve_bytes(found, self._policy.reserve_mb)
        least = _START_BYTES + int(wanted * _TABLES_SHARE)
        if available - self._owed < least:
            raise errors.HostDiskFull(
                f"{max(0, available - self._owed) // MIB} MB of the host's disk are left for sandboxes, and a new one "
                f"needs {least // MIB} MB to begin with. {_REMEDY}"
            )
        self._check_overcommit(wanted, available)

    def shortage(self) -> str | None:
        return shortage(self._root, self._policy.reserve_mb)

    def storage(self) -> Storage:
        found = room(self._root)
        promised = sum(one.record.spec.resources.disk_mb for one in self._disks())
        reserve = reserve_bytes(found, self._policy.reserve_mb)
        return Storage(found.free // MIB, reserve // MIB, promised, self.shortage())

    async def wake(self) -> None:
        """One that rested is about to be used: give it the share of those that are."""
        if self._limited:
            await self.share_out()

    async def share_out(self) -> bool:
        """Whether somebody's share is so small that it must be looked at again soon."""
        return await asyncio.to_thread(self._share_out, list(self._disks()))

    async def keep(self, repair: Callable[[LocalHandle], Awaitable[bool]], notice: Callable[[], Notice]) -> None:
        """Until cancelled."""
        while True:
            started = time.monotonic()
            tight = await self.share_out()
            await asyncio.to_thread(self.reserve.hold)
            await self._repair_failed(repair, notice())
            spent = time.monotonic() - started
            pause = look_pause(spent, tight=tight, needs_more=tight and self.needs_more)
            await asyncio.sleep(pause)

    def _check_overcommit(self, wanted: int, available: int) -> None:
        if not self._policy.overcommit:
            return
        disks = list(self._disks())
        promised = sum(one.record.spec.resources.disk_mb for one in disks) * MIB + wanted
        if promised <= available * self._policy.overcommit:
            return
        backed = sum(found.backed for one in disks if (found := one.disk()) is not None)
        most = int((available + backed) * self._policy.overcommit)
        if promised > most:
            raise errors.HostDiskFull(
                f"The disks of all sandboxes would have {promised // MIB} MB together, and {most // MIB} MB may be "
                f"promised here (PADDOCK_DISK_OVERCOMMIT={self._policy.overcommit:g}). {_REMEDY}"
            )

    def _share_out(self, handles: Sequence[LocalHandle]) -> bool:
        with self._sharing:
            found = room(self._root)
            available = found.free - reserve_bytes(found, self._policy.reserve_mb)
            promised = sum(one.record.spec.resources.disk_mb for one in handles) * MIB
            if promised <= available and not self._limited:
                self._owed, self._free_before = 0, {}
                return False
            with_disk = [(one, disk) for one in handles if (disk := one.disk()) is not None]
            weights = [self._weight(one, disk) for one, disk in with_disk]
            disks = [(_mount(one), disk) for one, disk in with_disk]
            most = [disk.spendable for _, disk in disks]
            claims = [self._claim(mount, disk) for mount, disk in disks]
            owed = sum(disk.owed for _, disk in disks)
            shares = share_with_claims(available - owed, claims, most, weights)
            self._owed = owed + sum(claims)
            self._free = {mount: disk.free for mount, disk in disks}
            self._free_before = {mount: self._free_before[mount] for mount, _ in disks}
            left = [max(0, disk.free - self._kept_back.get(mount, 0)) for mount, disk in disks]
            self.needs_more = any(
                rest < _NEEDS_MORE_BYTES and part > rest + MIB for rest, part in zip(left, shares, strict=True)
            )
            self._limit(disks, shares)
            self._limited = shares != most
            return any(part < min(all_of_it, _AMPLE_BYTES) for part, all_of_it in zip(shares, most, strict=True))

    def _claim(self, mount: _Mount, disk: MountedDisk) -> int:
        taken = max(0, self._free_before.setdefault(mount, disk.free) - disk.free)
        return min(disk.spendable, max(0, _START_BYTES - taken))

    def _weight(self, handle: LocalHandle, disk: MountedDisk) -> int:
        if handle.paused or not handle.record.spec.key:
            return _RESTING_WEIGHT
        return _GROWING_WEIGHT if disk.free < self._free.get(_mount(handle), 0) else _USUAL_WEIGHT

    def _limit(self, disks: Sequence[tuple[_Mount, MountedDisk]], shares: Sequence[int]) -> None:
        wanted = {
            mount: (disk, disk.kernels_own if part >= disk.spendable else disk.free - part)
            for (mount, disk), part in zip(disks, shares, strict=True)
        }
        before, self._kept_back = self._kept_back, {}
        # What is taken away comes first: in no moment is more given than there is.
        for mount in sorted(wanted, key=lambda each: before.get(each, 0) - wanted[each][1]):
            disk, amount = wanted[mount]
            if before.get(mount) == amount or self._keep_back(disk, amount):
                self._kept_back[mount] = amount

    def _keep_back(self, disk: MountedDisk, amount: int) -> bool:
        try:
            disk.keep_back(amount)
        except FileNotFoundError:
            return False  # it has just ended
        except OSError as error:
            if not self._refused:
                log.error("disks of sandboxes cannot be limited: /sys must be writable", problem=str(error))
            self._refused = True
            return False
        return True

    async def _repair_failed(self, repair: Callable[[LocalHandle], Awaitable[bool]], notice: Notice) -> None:
        """Disks that failed all the same, when others took what was to stay free: as soon as there is room."""
        failed = [one for one in self._disks() if one.disk_failed()]
        has_room = failed and self.shortage() is None
        for handle in failed:
            sandbox_id, now = handle.record.spec.sandbox_id, time.monotonic()
            if sandbox_id not in self._failed:
                self._failed[sandbox_id] = float("-inf")
                log.error("the file system of a sandbox has failed", sandbox_id=sandbox_id)
                message = "Its file system met an error and takes no more writes. It is repaired when there is room."
                await notice(sandbox_id, "disk.failed", {"message": message})
            if not has_room or now - self._failed[sandbox_id] < _REPAIR_AGAIN_S:
                continue
            self._failed[sandbox_id] = now
            await self._repair(handle, repair, notice)
        if not failed:
            self._failed.clear()

    async def _repair(
        self, handle: LocalHandle, repair: Callable[[LocalHandle], Awaitable[bool]], notice: Notice
    ) -> None:
        sandbox_id = handle.record.spec.sandbox_id
        try:
            if not await repair(handle):
                return
        except (errors.PaddockError, OSError) as error:
            log.error("the disk of a sandbox could not be repaired", sandbox_id=sandbox_id, problem=str(error))
            return
        self._failed.pop(sandbox_id, None)
        message = "Its file system was repaired. Its processes were ended for that; its files are kept."
        await notice(sandbox_id, "disk.repaired", {"message": message})


def look_pause(spent: float, *, tight: bool, needs_more: bool) -> float:
    """Seconds until shares are set anew, after a look that took so long."""
    pause = max(_TIGHT_LOOK_S if tight else _LOOK_S, spent / _CPU_SHARE)
    return min(pause, max(_NEEDS_MORE_LOOK_S, spent)) if needs_more else pause


def _mount(handle: LocalHandle) -> _Mount:
    return handle.record.reference, handle.running.pid


def share_with_claims(amount: int, claims: Sequence[int], most: Sequence[int], weights: Sequence[int]) -> list[int]:
    """First what each has a claim to, equally where that is too much; what is left goes by weight."""
    first = share(amount, claims, [1] * len(claims))
    rest = share(amount - sum(first), [all_of_it - part for all_of_it, part in zip(most, first, strict=True)], weights)
    return [part + more for part, more in zip(first, rest, strict=True)]


def share(amount: int, most: Sequence[int], weights: Sequence[int]) -> list[int]:
    """By weight, to none more than it can use; what one cannot use goes to the others."""
    shares = [0] * len(most)
    left, waiting = max(0, amount), set(range(len(most)))
    while waiting and left > 0:
        unit = left / sum(weights[each] for each in waiting)
        satisfied = [each for each in waiting if most[each] <= unit * weights[each]]
        if not satisfied:
            for each in waiting:
                shares[each] = int(unit * weights[each])
            break
        for each in satisfied:
            shares[each] = most[each]
            left -= most[each]
        waiting -= set(satisfied)
    return shares
