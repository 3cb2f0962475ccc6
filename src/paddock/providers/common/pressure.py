"""What a sandbox's control group tells of how hard it presses, and what can be done about it from outside."""

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

_KILL_SECONDS = 10.0
_KILLED_AT_ONCE = 8
_KILL_PAUSE_S = 0.01
_STAT = Path("/proc/stat")


class Processors:
    """How busy the machine's processors are, with whomever's work."""

    def __init__(self) -> None:
        self._stat = KernelFile(_STAT)
        self._last = self._busy_and_total()

    def busy_share(self) -> float:
        """Since the last time this was asked."""
        now, last = self._busy_and_total(), self._last
        self._last = now
        return (now[0] - last[0]) / max(1, now[1] - last[1])

    def _busy_and_total(self) -> tuple[int, int]:
        """Ticks since the boot: with work, and all. Waiting for a disk is no work."""
        ticks = [int(word) for word in self._stat.read().split(b"\n", 1)[0].split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class CpuTime:
    """Processor time of all sandboxes together, from one read."""

    def __init__(self, cgroups: Cgroups) -> None:
        """Raises Unsupported where the kernel does not count it."""
        if (place := cgroups.v1.get("cpuacct")) is not None:
            self._file, self._unit = KernelFile(place / "cpuacct.usage"), 1e9
        elif cgroups.v2 is not None and "cpu" in cgroups.v2_controllers:
            self._file, self._unit = KernelFile(cgroups.v2 / "cpu.stat"), 1e6
        else:
            raise errors.Unsupported("The kernel does not count the processor time of sandboxes here.")

    def seconds(self) -> float:
        """``cpu.stat`` begins with the name of its first number; ``cpuacct.usage`` has no other."""
        return int(self._file.read().split(b"\n", 1)[0].split()[-1]) / self._unit


def refused_forks(group: CgroupHandle) -> int:
    """How often a process was refused because of the limit, since the group was made."""
    path = _of(group, "pids")
    return 0 if path is None else read_field(path / "pids.events", "max")


def tasks(group: CgroupHandle) -> int:
    """Processes and threads that are in it now."""
    path = _of(group, "pids")
    return 0 if path is None else read_number(path / "pids.current")


def at_work(group: CgroupHandle) -> int:
    """Processes that run, or wait for a processor, a disk or a lock of the kernel."""
    path = _of(group, "pids")
    return 0 if path is None else sum(_state(pid) in "RD" for pid in _listed(path))


def yields(group: CgroupHandle) -> bool:
    """Whether it runs only when no other sandbox wants to."""
    path = _of(group, "cpu")
    return path is not None and read_number(path / "cpu.idle") == 1


def set_yields(group: CgroupHandle, value: bool) -> None:
    """``cpu.idle`` is there from Linux 5.15; before it, the smallest share comes close."""
    if (path := _of(group, "cpu")) is None:
        return
    with contextlib.suppress(FileNotFoundError):  # it ends in this moment
        if (path / "cpu.idle").exists():
            write_value(path / "cpu.idle", "1" if value else "0")
        elif "cpu" in group.v1:
            write_value(path / "cpu.shares", "2" if value else "1024")
        else:
            write_value(path / "cpu.weight", "1" if value else "100")


def kill_all_but(group: CgroupHandle, agent: int, pids: int) -> int:
    """End every process but the agent, and answer how many there were. ``pids``: the limit that holds afterwards.

    Meanwhile no process may be made: one that forks faster than it can be killed would get away. All are stopped
    first and then killed a few at a time: the kernel takes a millisecond or two to take each apart, which it
    would do for hundreds at once before anybody else had a turn.
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
        for first in range(0, len(waiting), _KILLED_AT_ONCE):
            _signal(waiting[first : first + _KILLED_AT_ONCE], signal.SIGKILL)
            time.sleep(_KILL_PAUSE_S)
        _end_late_ones(path, agent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            write_value(path / "pids.max", str(pids + 1))
    return len(stopped)


def _end_late_ones(path: Path, agent: int) -> None:
    """Until nobody is left: what was killed takes its time, and a number may have been given anew."""
    deadline = time.monotonic() + _KILL_SECONDS
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
    """Without those that have ended and only wait to be asked about: they are 0 or gone here."""
    return [int(pid) for pid in _listed(path) if _state(pid) not in "ZX"]


def _listed(path: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (path / "cgroup.procs").read_text().split()
    return []


def _state(pid: str) -> str:
    """One letter, as in ``ps``; X also where there is no such process any more."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
