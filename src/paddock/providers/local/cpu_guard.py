"""Keeps a sandbox that takes all it can get from slowing down the others.

While the processors are busy with sandboxes, one that has computed for long yields to those that have not: it runs when
they leave room, which is most of the time, and they do not wait for it. A fork bomb (a sandbox that keeps on forking
at its limit of processes) loses its processes; the sandbox stays, and the event ``processes.killed`` says why.

What all sandboxes use together is one read. Only while that is much is each of them looked at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog

from paddock import errors
from paddock.providers.base import Notice
from paddock.providers.common import pressure
from paddock.providers.common.cgroups import CgroupHandle, Cgroups
from paddock.providers.local import fork_bomb
from paddock.providers.local.handle import LocalHandle

log = structlog.get_logger(__name__)

_LOOK_S = 0.03
_SCAN_SHARE = 0.1
"""Of the time, at most, goes into looking at each sandbox: with hundreds of them, looks are rarer."""
_QUIET_CPUS = 0.3
_QUIET_CPUS_CROWDED = 0.02
"""Used by all sandboxes together: below that nobody is looked at. Where others keep the processors busy, sandboxes
fight over the little that is left."""
_CROWDED_SHARE = 0.6
"""Of the machine's processors, used by whomever: above that, sandboxes can get into each other's way."""
_BURST_CPU_S = 0.08
_REFILL_CPUS = 0.15
"""What a sandbox may use without yielding: bursts of that many seconds, and on average that part of a processor; less
by as much as all sandboxes together get less than one."""
_BOMB_REFUSALS = 100
_BOMB_WINDOW_S = 1.0
"""So many refused forks within the time are no program's mistake. One that meets its limit gives up, or waits."""
_BOMB_LASTS_S = 0.1
"""For so long it has to be full and at work: whoever starts many processes at once is so for a moment."""
_YIELD_AFTER_BOMB_S = 60.0
"""For so long after a fork bomb its sandbox yields, whatever it does: the next one is not felt from the first."""


@dataclass(slots=True)
class _Account:
    """What one sandbox has used, as far as it was looked at."""

    group: CgroupHandle
    cpu_s: float
    at: float
    refused: int
    left_s: float = _BURST_CPU_S
    yields: bool = False
    refusals: list[tuple[float, int]] = field(default_factory=list)
    full_since: float | None = None
    """Since when every look found it at its limit of processes, with most of them at work."""


class CpuGuard:
    def __init__(
        self, cgroups: Cgroups, handles: Callable[[], Iterable[LocalHandle]], notice: Callable[[], Notice]
    ) -> None:
        self._cgroups = cgroups
        self._handles = handles
        self._notice = notice
        self._accounts: dict[str, _Account] = {}
        self._yield_until: dict[str, float] = {}
        """Until when who has to yield: by reference."""
        self._ending: dict[str, asyncio.Task[None]] = {}
        """Fork bombs whose processes are being killed: by reference."""

    async def keep(self) -> None:
        """Until cancelled."""
        try:
            await self._keep()
        finally:
            for task in self._ending.values():
                task.cancel()
            await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _keep(self) -> None:
        try:
            cpu_time = pressure.CpuTime(self._cgroups)
        except errors.Unsupported:
            return
        processors = pressure.Processors()
        last, total = time.monotonic(), cpu_time.seconds()
        pause = _LOOK_S
        while True:
            await asyncio.sleep(pause)
            pause = _LOOK_S
            before, was, last, total = last, total, time.monotonic(), cpu_time.seconds()
            used = (total - was) / max(last - before, 1e-3)
            crowded = processors.busy_share() > _CROWDED_SHARE
            if used > (_QUIET_CPUS_CROWDED if crowded else _QUIET_CPUS):
                await self._look(used, crowded=crowded)
                pause = max(_LOOK_S, (time.monotonic() - last) / _SCAN_SHARE)
            elif self._accounts:
                await asyncio.to_thread(self._rest)

    async def _look(self, used: float, *, crowded: bool) -> None:
        self._ending = {reference: task for reference, task in self._ending.items() if not task.done()}
        present = [
            one
            for one in self._handles()
            if not one.paused and one.record.running is not None and one.record.reference not in self._ending
        ]
        try:
            bombs = await asyncio.to_thread(self._scan, present, min(1.0, used), crowded)
        except errors.PaddockError as error:
            log.warning("sandboxes could not be looked at", problem=error.message)
            return
        for bomb in bombs:  # the others are looked at meanwhile
            self._ending[bomb.record.reference] = asyncio.create_task(self._end(bomb))

    def _scan(self, present: Iterable[LocalHandle], room: float, crowded: bool) -> list[LocalHandle]:
        """``room``: the processors that all of them got, at most one."""
        bombs = []
        seen: dict[str, _Account] = {}
        for handle in present:
            running = handle.record.running
            if running is None or running.group is None:
                continue
            account = self._accounts.get(handle.record.reference)
            if account is None:
                seen[handle.record.reference] = _opened(running.group)
                continue
            seen[handle.record.reference] = account
            used = _charge(account, room)
            if crowded or account.yields:
                _judge(account, room, must_yield=account.at < self._yield_until.get(handle.record.reference, 0.0))
            if used > _QUIET_CPUS_CROWDED / 10 and _is_bomb(account, handle.record.spec.resources.pids):
                bombs.append(handle)
        self._accounts = seen
        return bombs

    def _rest(self) -> None:
        """Nobody presses any more: all are equal again, but for fork bombs, and what they used is forgotten."""
        now = time.monotonic()
        self._yield_until = {reference: until for reference, until in self._yield_until.items() if until > now}
        accounts, self._accounts = self._accounts, {}
        for reference, account in accounts.items():
            if account.yields and reference not in self._yield_until:
                pressure.set_yields(account.group, False)

    def _reset_refusals(self, reference: str) -> None:
        """What was refused until now counts no more against what runs next."""
        if (account := self._accounts.get(reference)) is not None:
            account.refused = pressure.refused_forks(account.group)
            account.refusals = []

    async def _end(self, handle: LocalHandle) -> None:
        record = handle.record
        if (running := record.running) is None or (group := running.group) is None:
            return
        try:
            kill = partial(asyncio.to_thread, pressure.kill_all_but, group, running.pid, record.spec.resources.pids)
            pressure.set_yields(group, False)  # who yields takes long to end
            await fork_bomb.end(handle, self._notice(), kill)
            self._yield_until[record.reference] = time.monotonic() + _YIELD_AFTER_BOMB_S
            pressure.set_yields(group, True)
        except (errors.PaddockError, OSError) as error:
            log.warning("a fork bomb could not be ended", sandbox_id=record.spec.sandbox_id, problem=str(error))
        finally:
            self._reset_refusals(record.reference)


def _opened(group: CgroupHandle) -> _Account:
    """A server that died may have left it yielding."""
    yields = pressure.yields(group)
    left = 0.0 if yields else _BURST_CPU_S
    return _Account(group, group.cpu_seconds() or 0.0, time.monotonic(), pressure.refused_forks(group), left, yields)


def _charge(account: _Account, room: float) -> float:
    """Processors that it has kept busy since the last look."""
    now, total = time.monotonic(), account.group.cpu_seconds() or 0.0
    passed, used = max(now - account.at, 1e-3), total - account.cpu_s
    account.at, account.cpu_s = now, total
    burst = _BURST_CPU_S * room
    account.left_s = min(burst, max(-burst, account.left_s + passed * _REFILL_CPUS * room - used))
    return used / passed


def _judge(account: _Account, room: float, *, must_yield: bool) -> None:
    wanted = must_yield or account.left_s < (_BURST_CPU_S * room if account.yields else 0.0)
    if account.yields != wanted:
        account.yields = wanted
        pressure.set_yields(account.group, wanted)


def _is_bomb(account: _Account, limit: int) -> bool:
    refused, tasks = _refusals(account), pressure.tasks(account.group)
    if refused >= _BOMB_REFUSALS:
        return True
    if not fork_bomb.is_full(tasks, limit) or not fork_bomb.is_fork_bomb(tasks, pressure.at_work(account.group), limit):
        account.full_since = None
        return False
    if account.full_since is None:
        account.full_since = account.at
    return account.at - account.full_since >= _BOMB_LASTS_S


def _refusals(account: _Account) -> int:
    total = pressure.refused_forks(account.group)
    account.refusals.append((account.at, total - account.refused))
    account.refused = total
    account.refusals = [one for one in account.refusals if one[0] > account.at - _BOMB_WINDOW_S]
    return sum(count for _, count in account.refusals)
