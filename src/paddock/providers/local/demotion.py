"""For an ordinary user without control groups: processes of a sandbox that computes for long become idle processes.

``SCHED_IDLE`` is inherited and cannot be left without privilege, so it sticks to what has computed for long and to what
that starts; the agent, and so the next command, is as quick as ever. While the machine is not busy nobody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.providers.local.living import Living

_LOOK_S = 0.1
_CROWDED_SHARE = 0.6
"""Of the machine's processors, used by whomever: above that, sandboxes can get into others' way."""
_BURST_CPU_S = 0.25
_REFILL_CPUS = 0.15
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    ticks: int
    """Its own, and of its children that it has asked about."""
    threads: int
    idle: bool


async def keep(living: Callable[[], Iterable[Living]]) -> None:
    """Until cancelled."""
    demotion = Demotion()
    last = _busy_and_total()
    while True:
        await asyncio.sleep(_LOOK_S)
        now = _busy_and_total()
        share = (now[0] - last[0]) / max(1, now[1] - last[1])
        last = now
        agents = {one.running.pid for one in living() if not one.paused and one.record.running is not None}
        if share > _CROWDED_SHARE and agents:
            await asyncio.to_thread(demotion.look, agents)
        else:
            demotion.forget()


class Demotion:
    def __init__(self) -> None:
        self._seen: Mapping[int, _Process] = {}
        self._left_s: dict[int, float] = {}
        self._at = 0.0

    def forget(self) -> None:
        if self._seen:
            self._seen, self._left_s = {}, {}

    def look(self, agents: set[int]) -> None:
        """One look at all processes, charged to the sandboxes whose agents these are."""
        now, processes = time.monotonic(), _processes()
        members = _members(processes, agents)
        if self._seen:
            for agent, pids in members.items():
                spent = sum(max(0, processes[pid].ticks - self._ticks_before(pid)) for pid in pids) / _TICKS_PER_S
                left = self._left_s.get(agent, _BURST_CPU_S) + (now - self._at) * _REFILL_CPUS - spent
                self._left_s[agent] = min(_BURST_CPU_S, max(-_BURST_CPU_S, left))
                if left < 0:
                    for pid in (pid for pid in pids if pid != agent and not processes[pid].idle):
                        _demote(pid, processes[pid].threads)
        self._seen, self._at = processes, now

    def _ticks_before(self, pid: int) -> int:
        seen = self._seen.get(pid)
        return 0 if seen is None else seen.ticks


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - of thousands, many times a second
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                ticks = sum(int(field) for field in fields[11:15])
                idle = int(fields[38]) == os.SCHED_IDLE
                found[int(name)] = _Process(int(fields[1]), ticks, int(fields[17]), idle)
    return found


def _members(processes: Mapping[int, _Process], agents: set[int]) -> dict[int, list[int]]:
    """By agent: whatever loses its parent in a sandbox becomes its agent's child, so the way up leads there."""
    roots: dict[int, int | None] = {agent: agent for agent in agents}
    members: dict[int, list[int]] = {}
    for pid in processes:
        way = []
        at = pid
        while at not in roots and at in processes and at not in way:
            way.append(at)
            at = processes[at].parent
        root = roots.get(at)
        roots.update(dict.fromkeys(way, root))
        if root is not None:
            members.setdefault(root, []).append(pid)
    return members


def _demote(pid: int, threads: int) -> None:
    """It may have ended, or the kernel may say no: then it stays what it was."""
    with contextlib.suppress(OSError):
        tasks = [pid] if threads == 1 else [int(task) for task in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
        for task in tasks:
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))


def _busy_and_total() -> tuple[int, int]:
    """Ticks of all processors since the boot: those with work, and all. ``idle`` and ``iowait`` are no work."""
    ticks = [int(word) for word in _STAT.read_bytes().split(b"\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
