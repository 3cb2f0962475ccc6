"""What a sandbox's control group tells of how hard it presses, and what can be done about it from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from paddock import errors
from paddock.providers.ground.cgroups import Cgroups, Group
from paddock.providers.ground.group_files import KernelFile, read_field, read_number, write_value

_KILL_SECONDS = 10.0
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


def refused_forks(group: Group) -> int:
    """How often a process was refused because of the limit, since the group was made."""
    path = _of(group, "pids")
    return 0 if path is None else read_field(path / "pids.events", "max")


def yields(group: Group) -> bool:
    """Whether it runs only when no other sandbox wants to."""
    path = _of(group, "cpu")
    return path is not None and read_number(path / "cpu.idle") == 1


def set_yields(group: Group, value: bool) -> None:
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


def kill_all_but(group: Group, agent: int, pids: int) -> int:
    """End every process but the agent, and answer how many there were. ``pids``: the limit that holds afterwards.

    Meanwhile no process may be made: one that forks faster than it can be killed would get away.
    """
    if (path := _of(group, "pids")) is None:
        raise errors.Unsupported("There is no limit of processes here, so a flood of them cannot be held.")
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    write_value(path / "pids.max", "1")
    try:
        while found := [pid for pid in _processes(path) if pid != agent]:
            if time.monotonic() > deadline:
                raise errors.ProviderUnavailable("The processes of a sandbox did not end in time.")
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(found)
            time.sleep(0.005)
    finally:
        with contextlib.suppress(FileNotFoundError):
            write_value(path / "pids.max", str(pids + 1))
    return len(killed)


def _of(group: Group, controller: str) -> Path | None:
    if (path := group.v1.get(controller)) is not None:
        return path
    return group.v2 if controller in group.v2_controllers else None


def _processes(path: Path) -> list[int]:
    """Without those that have ended and only wait to be asked about: they are 0 or gone here."""
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split() if _runs(pid)]
    return []


def _runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
