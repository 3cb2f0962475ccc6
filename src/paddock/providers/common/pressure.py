"""Load that a sandbox's cgroup reports, and countermeasures from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from paddock import errors
from paddock.providers.common.cgroups import CgroupHandle, Cgroups
from paddock.providers.common.kernel_files import KernelFile, read_field, read_number, write_value

_KILL_TIMEOUT_S = 10.0
_KILL_BATCH = 8
_KILL_PAUSE_S = 0.01
_STAT = Path("/proc/stat")


class Processors:
    """How busy the host's processors are, with work of any process."""

    def __init__(self) -> None:
        self._stat = KernelFile(_STAT)
        self._last = self._busy_and_total()

    def busy_share(self) -> float:
        """The busy share since the previous call."""
        now, last = self._busy_and_total(), self._last
        self._last = now
        return (now[0] - last[0]) / max(1, now[1] - last[1])

    def _busy_and_total(self) -> tuple[int, int]:
        """Ticks since boot: busy, and total. Waiting for I/O does not count as busy."""
        ticks = [int(word) for word in self._stat.read().split(b"\n", 1)[0].split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class CpuTime:
    """CPU time of all sandboxes together, from one read."""

    def __init__(self, cgroups: Cgroups) -> None:
        """Raises Unsupported if the kernel does not count it."""
        if (place := cgroups.v1.get("cpuacct")) is not None:
            self._file, self._unit = KernelFile(place / "cpuacct.usage"), 1e9
        elif cgroups.v2 is not None and "cpu" in cgroups.v2_controllers:
            self._file, self._unit = KernelFile(cgroups.v2 / "cpu.stat"), 1e6
        else:
            raise errors.Unsupported("The kernel does not count the processor time of sandboxes here.")

    def seconds(self) -> float:
        """The first line of ``cpu.stat`` is a name and a number; ``cpuacct.usage`` is a number only."""
        return int(self._file.read().split(b"\n", 1)[0].split()[-1]) / self._unit


def refused_forks(group: CgroupHandle) -> int:
    """How many forks the limit has refused since the group was created."""
    path = _of(group, "pids")
    return 0 if path is None else read_field(path / "pids.events", "max")


def tasks(group: CgroupHandle) -> int:
    """Number of processes and threads in the group."""
    path = _of(group, "pids")
    return 0 if path is None else read_number(path / "pids.current")


def at_work(group: CgroupHandle) -> int:
    """Number of processes that run, or wait for a processor, a disk or a kernel lock."""
    path = _of(group, "pids")
    return 0 if path is None else sum(_state(pid) in "RD" for pid in _listed(path))


def yields(group: CgroupHandle) -> bool:
    """Whether the group runs only when no other sandbox wants to."""
    path = _of(group, "cpu")
    return path is not None and read_number(path / "cpu.idle") == 1


def set_yields(group: CgroupHandle, value: bool) -> None:
    """``cpu.idle`` exists since Linux 5.15; before it, the minimum share is similar."""
    if (path := _of(group, "cpu")) is None:
        return
    with contextlib.suppress(FileNotFoundError):  # the group is just being removed
        if (path / "cpu.idle").exists():
            write_value(path / "cpu.idle", "1" if value else "0")
        elif "cpu" in group.v1:
            write_value(path / "cpu.shares", "2" if value else "1024")
        else:
            write_value(path / "cpu.weight", "1" if value else "100")


def kill_all_but(group: CgroupHandle, agent: int, pids: int) -> int:
    """Kill every process except the agent; returns how many there were. ``pids``: the limit to restore afterwards.

    Forks are blocked meanwhile: a process that forks faster than it is killed would survive. All are stopped first and
    then killed a few at a time, because the kernel needs a millisecond or two to tear down each, and would otherwise do
    that for hundreds of them before anything else runs.
    """
    if (path := _of(group, "pids")) is None:
        raise errors.Unsupported("There is no limit of processes here, so a flood of them cannot be held.")
    stopped: set[int] = set()
    write_value(path / "pids.max", "1")
    try:
        while fresh := {int(pid) for pid in _listed(path)} - stopped - {agent}:
            _signal(fresh, signal.SIGSTOP)
            stopped |= fresh
        waiting = list(stopped)
        for first in range(0, len(waiting), _KILL_BATCH):
            _signal(waiting[first : first + _KILL_BATCH], signal.SIGKILL)
            time.sleep(_KILL_PAUSE_S)
        _end_late_ones(path, agent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            write_value(path / "pids.max", str(pids + 1))
    return len(stopped)


def _end_late_ones(path: Path, agent: int) -> None:
    """Repeat until none is left: killed processes take a moment to end, and a pid may have been reused."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while found := [pid for pid in _processes(path) if pid != agent]:
        if time.monotonic() > deadline:
            raise errors.ProviderUnavailable("The processes of a sandbox did not end in time.")
        _signal(found, signal.SIGKILL)
        time.sleep(_KILL_PAUSE_S)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _of(group: CgroupHandle, controller: str) -> Path | None:
    if (path := group.v1.get(controller)) is not None:
        return path
    return group.v2 if controller in group.v2_controllers else None


def _processes(path: Path) -> list[int]:
    """Without zombies, which are listed as 0 or not at all here."""
    return [int(pid) for pid in _listed(path) if _state(pid) not in "ZX"]


def _listed(path: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (path / "cgroup.procs").read_text().split()
    return []


def _state(pid: str) -> str:
    """The state letter, as in ``ps``; X if the process no longer exists."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
