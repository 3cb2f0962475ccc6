"""For an ordinary user without control groups: processes of a sandbox that computes for long become idle processes.

``SCHED_IDLE`` is inherited and cannot be left without privilege, so it sticks to what has computed for long and to what
that starts; the agent, and so the next command, is as quick as ever. Where the kernel groups processes by session
(autogroup), such a policy counts within a session only, so the session gets the lowest weight as well. One that keeps
computing at its limit of processes is a fork bomb, and loses them all; after the second one all that its agent starts
is idle too, until the sandbox starts anew. While the machine is not busy, no process is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from paddock import errors
from paddock.providers.base import Notice
from paddock.providers.common import pressure
from paddock.providers.common.autogroup import Autogroups
from paddock.providers.common.pressure import Processors
from paddock.providers.local import fork_bomb
from paddock.providers.local.handle import LocalHandle

log = structlog.get_logger(__name__)

_LOOK_S = 0.1
_CROWDED_SHARE = 0.6
"""Of the machine's processors, used by whomever: above that, sandboxes can get into others' way."""
_BURST_CPU_S = 0.1
_REFILL_CPUS = 0.15
_MANY_RUNNABLE = 16
"""More at once, and all yield: each may have run for less than the kernel counts, yet together they are a crowd."""
_BOMBS_BEFORE_IDLE = 1
_KILL_SECONDS = 10.0
_AGENT_TIMEOUT_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    session: int
    ticks: int
    """Its own, and of its children that it has asked about."""
    threads: int
    idle: bool
    runnable: bool


async def keep(handles: Callable[[], Iterable[LocalHandle]], notice: Callable[[], Notice]) -> None:
    """Until cancelled."""
    demotion = Demotion()
    processors = Processors()
    while True:
        await asyncio.sleep(_LOOK_S)
        share = processors.busy_share()
        present = {one.running.pid: one for one in handles() if not one.paused and one.record.running is not None}
        if share <= _CROWDED_SHARE or not present:
            demotion.forget()
            continue
        limits = {agent: one.record.spec.resources.pids for agent, one in present.items()}
        bombs = await asyncio.to_thread(demotion.look, limits)
        await asyncio.gather(*(_end(present[agent], notice()) for agent in bombs))


async def kill_from_outside(handle: LocalHandle) -> int:
    """Not only the commands that the agent knows: one that left its session writes on."""
    running, limit = handle.record.running, handle.record.spec.resources.pids
    if running is None:
        return 0
    if running.group is not None and "pids" in running.group.limits:
        return await asyncio.to_thread(pressure.kill_all_but, running.group, running.pid, limit)
    return await asyncio.to_thread(kill_below, running.pid, once=True)


async def _end(handle: LocalHandle, notice: Notice) -> None:
    await fork_bomb.end(handle, notice, lambda: _kill_all(handle))


async def _kill_all(handle: LocalHandle) -> int:
    """By its agent in one system call: who kills them one by one from outside runs after those that fork meanwhile."""
    try:
        async with asyncio.timeout(_AGENT_TIMEOUT_S):
            return await handle.machine.kill_all()
    except (TimeoutError, errors.PaddockError) as error:
        log.info("an agent did not kill its processes", sandbox_id=handle.record.spec.sandbox_id, problem=str(error))
        return await asyncio.to_thread(kill_below, handle.running.pid)


class Demotion:
    def __init__(self) -> None:
        self._autogroups = Autogroups()
        self._seen: Mapping[int, _Process] = {}
        self._left_s: dict[int, float] = {}
        self._bombs: dict[int, int] = {}
        self._at = 0.0

    def forget(self) -> None:
        if self._seen:
            self._seen, self._left_s = {}, {}

    def look(self, limits: Mapping[int, int]) -> list[int]:
        """One look at all processes, charged to the sandboxes of these agents, with the limit of each.

        Answers the agents of fork bombs.
        """
        now, processes = time.monotonic(), _processes()
        seen, self._seen = self._seen, processes
        passed, self._at = now - self._at, now
        self._autogroups.forget_all_but({process.session for process in processes.values()})
        self._bombs = {agent: count for agent, count in self._bombs.items() if agent in limits}
        bombs = []
        for agent, pids in _members(processes, limits.keys()).items():
            members = [(pid, processes[pid]) for pid in pids]
            tasks = sum(process.threads for _, process in members)
            at_work = sum(process.runnable for _, process in members)
            if fork_bomb.is_fork_bomb(tasks, at_work, limits[agent]):
                bombs.append(agent)  # and not made idle: what is killed then takes long to end
            elif seen:
                self._charge(agent, members, seen, passed)
        for agent in bombs:
            self._bombs[agent] = self._bombs.get(agent, 0) + 1
            if self._bombs[agent] > _BOMBS_BEFORE_IDLE:
                _demote(agent, processes[agent].threads)
        return bombs

    def _charge(
        self, agent: int, members: Sequence[tuple[int, _Process]], seen: Mapping[int, _Process], passed: float
    ) -> None:
        """What it has used since it was seen last; where that is more than it may without yielding, it yields."""
        before = ((process.ticks, seen.get(pid)) for pid, process in members)
        spent = sum(max(0, ticks - (0 if was is None else was.ticks)) for ticks, was in before) / _TICKS_PER_S
        left = self._left_s.get(agent, _BURST_CPU_S) + passed * _REFILL_CPUS - spent
        self._left_s[agent] = min(_BURST_CPU_S, max(-_BURST_CPU_S, left))
        if left < 0 or sum(process.runnable for _, process in members) > _MANY_RUNNABLE:
            own = dict(members)[agent].session
            others = [(pid, process) for pid, process in members if pid != agent]
            for session, pid in {process.session: pid for pid, process in others}.items():
                if session != own:
                    self._autogroups.lower(session, pid, agent)
            for pid, process in others:
                if not process.idle:
                    _demote(pid, process.threads)


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - of thousands, many times a second
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if fields[0] in b"ZX":
                    continue
                ticks = sum(int(field) for field in fields[11:15])
                idle, runnable = int(fields[38]) == os.SCHED_IDLE, fields[0] in b"RD"
                found[int(name)] = _Process(int(fields[1]), int(fields[3]), ticks, int(fields[17]), idle, runnable)
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def kill_below(agent: int, *, once: bool = False) -> int:
    """Every process of a sandbox but its agent. They yield by now, so that they cannot outrun this.

    ``once``: what starts from now on is left alone, such as a command that tidies up.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        found = [pid for pid in _members(_processes(), {agent}).get(agent, []) if pid != agent]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        if once:
            break
        time.sleep(_LOOK_S)  # to look costs the server more than they can do meanwhile
    return len(killed)


def _members(processes: Mapping[int, _Process], agents: Collection[int]) -> dict[int, list[int]]:
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
