"""Control groups: limits, freezer and counters of one sandbox, on v1, v2, both, or a delegated subtree of v2.

``Cgroups.find`` detects once what this machine offers. Without any usable cgroups sandboxes still run, limited by
rlimits only, and their isolation report says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from paddock import errors
from paddock.providers.base import Resources
from paddock.providers.common.kernel_files import read_field, read_number, write_value

V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "freezer")
_PERIOD_US = 100_000
_MOUNTS = Path("/proc/self/mountinfo")
_OWN_CGROUP = Path("/proc/self/cgroup")
_SERVER_LEAF = "paddock-server"
_SERVER_WEIGHT = "1000"
"""Ten times the weight of all sandboxes together, so that the server that all of them wait for is not starved by
one."""
_SANDBOXES_SHARES = "256"
"""Shares of all sandboxes together on v1, where each host process has 1024: they get what the host leaves. A quarter of
that, because the kernel was observed to run a group of fork bombs for 200 ms while the host's threads waited."""
_FREEZE_TIMEOUT_S = 5.0
_REWRITE_AFTER_S = 0.05
_REMOVE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The directories below which sandbox groups are created: per v1 controller, and the one of v2."""

    v1: Mapping[str, Path]
    v2: Path | None
    v2_controllers: frozenset[str]

    @classmethod
    def find(cls, name: str) -> Cgroups:
        """Detect where this process may create groups; ``name`` is the parent directory of Paddock's groups."""
        own = _own_groups(_OWN_CGROUP.read_text())
        v1: dict[str, Path] = {}
        v2: Path | None = None
        for mount, kind, options in _mounts(_MOUNTS.read_text()):
            if kind == "cgroup2" and v2 is None:
                v2 = _usable(_below(mount, own.get("", "/")), name)
            elif kind == "cgroup":
                for controller in options.intersection(V1_CONTROLLERS):
                    if controller not in v1 and (place := _usable(_below(mount, own.get(controller, "/")), name)):
                        v1[controller] = place
        if v2 is not None and (unused := v1.pop("freezer", None)) is not None:
            with contextlib.suppress(OSError):  # v2 freezes and kills more reliably, even without controllers
                unused.rmdir()
        if (cpu := v1.get("cpu")) is not None:
            _try_write(cpu / "cpu.shares", _SANDBOXES_SHARES)
        controllers = _delegate(v2, frozenset({"memory", "cpu", "pids"}) - v1.keys()) if v2 else frozenset()
        return cls(v1, v2, controllers)

    @property
    def limits(self) -> frozenset[str]:
        """Which of memory, cpu and pids have hard limits here."""
        return (self.v2_controllers | self.v1.keys()) & {"memory", "cpu", "pids"}

    @property
    def any(self) -> bool:
        return bool(self.v1) or self.v2 is not None

    @property
    def freezer(self) -> str | None:
        if self.v2 is not None:
            return "cgroup v2"
        return "cgroup v1" if "freezer" in self.v1 else None

    def describe(self, controller: str) -> str:
        return "cgroup v1" if controller in self.v1 else "cgroup v2"

    def group(self, name: str) -> CgroupHandle:
        v1 = {controller: place / name for controller, place in self.v1.items()}
        return CgroupHandle(v1, self.v2 / name if self.v2 else None, self.v2_controllers)

    def remove_empty(self, keep: set[str]) -> None:
        """Remove groups that a crash left behind. A group that still has processes is in use."""
        for place in {*self.v1.values(), *([self.v2] if self.v2 else [])}:
            for entry in place.iterdir():
                if entry.is_dir() and entry.name not in keep:
                    with contextlib.suppress(OSError):
                        entry.rmdir()

    def leave(self) -> None:
        """Remove the parent group too if it contains no sandbox."""
        for place in {*self.v1.values(), *([self.v2] if self.v2 else [])}:
            with contextlib.suppress(OSError):
                place.rmdir()


@dataclass(frozen=True, slots=True)
class CgroupHandle:
    """The group of one sandbox, in every hierarchy. Stored with the sandbox: a later server may run in another
    group."""

    v1: Mapping[str, Path]
    v2: Path | None
    v2_controllers: frozenset[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "v1": {controller: str(path) for controller, path in self.v1.items()},
            "v2": str(self.v2) if self.v2 else None,
            "v2_controllers": sorted(self.v2_controllers),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        v1 = {controller: Path(path) for controller, path in given["v1"].items()}
        return cls(v1, Path(given["v2"]) if given["v2"] else None, frozenset(given["v2_controllers"]))

    def make(self, resources: Resources) -> None:
        for path in self.paths():
            path.mkdir(exist_ok=True)
        self.limit(resources)

    def limit(self, resources: Resources) -> None:
        quota = max(1000, int(resources.cpu * _PERIOD_US))
        memory = resources.memory_mb << 20
        if path := self._v1("memory"):
            write_value(path / "memory.limit_in_bytes", str(memory))
        elif path := self._v2("memory"):
            write_value(path / "memory.max", str(memory))
            _try_write(path / "memory.swap.max", "0")
        if path := self._v1("cpu"):
            write_value(path / "cpu.cfs_period_us", str(_PERIOD_US))
            write_value(path / "cpu.cfs_quota_us", str(quota))
        elif path := self._v2("cpu"):
            write_value(path / "cpu.max", f"{quota} {_PERIOD_US}")
        if path := self._v1("pids") or self._v2("pids"):
            write_value(path / "pids.max", str(resources.pids + 1))  # one more for the agent

    @property
    def limits(self) -> frozenset[str]:
        """Which of memory, cpu and pids are hard limits of this group."""
        return (self.v2_controllers | self.v1.keys()) & {"memory", "cpu", "pids"}

    def task_files(self) -> list[str]:
        """The v1 ``tasks`` files that the launcher writes its pid to."""
        return [str(path / "tasks") for path in sorted(set(self.v1.values()))]

    def frozen(self) -> bool:
        try:
            if self.v2 is not None:
                return (self.v2 / "cgroup.freeze").read_text().strip() == "1"
            if path := self._v1("freezer"):
                return (path / "freezer.state").read_text().strip() != "THAWED"
        except FileNotFoundError:
            pass
        return False

    def freeze(self) -> None:
        self._set_frozen(True)

    def thaw(self) -> None:
        self._set_frozen(False)

    def kill(self) -> bool:
        """Kill all processes in it. False if the caller has to kill the sandbox's PID 1 instead."""
        if self.v2 is not None:
            try:
                write_value(self.v2 / "cgroup.kill", "1")
                return True
            except (FileNotFoundError, errors.ProviderUnavailable):
                return False
        if path := self._v1("freezer"):
            for pid in _pids(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(FileNotFoundError, errors.ProviderUnavailable):
                write_value(path / "freezer.state", "THAWED")  # a frozen process dies only once it is thawed
        return False

    def remove(self) -> None:
        """Call after its processes were killed: the kernel releases them a moment later."""
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        for path in self.paths():
            _remove(path, deadline)

    def processes(self) -> int | None:
        path = self._v1("pids") or self._v2("pids")
        return None if path is None else max(0, read_number(path / "pids.current") - 1)

    def memory(self) -> int | None:
        """Memory in use, without page cache that the kernel can reclaim."""
        if path := self._v1("memory"):
            used, cache = (
                read_number(path / "memory.usage_in_bytes"),
                read_field(path / "memory.stat", "total_inactive_file"),
            )
            return max(0, used - cache)
        if path := self._v2("memory"):
            return max(0, read_number(path / "memory.current") - read_field(path / "memory.stat", "inactive_file"))
        return None

    def memory_cache(self) -> int | None:
        if path := self._v1("memory"):
            return read_field(path / "memory.stat", "total_cache")
        if path := self._v2("memory"):
            return read_field(path / "memory.stat", "file")
        return None

    def oom_kills(self) -> int:
        """How many of its processes the OOM killer has killed."""
        if path := self._v1("memory"):
            return read_field(path / "memory.oom_control", "oom_kill")
        if path := self._v2("memory"):
            return read_field(path / "memory.events", "oom_kill")
        return 0

    def cpu_seconds(self) -> float | None:
        if path := self._v1("cpuacct"):
            return read_number(path / "cpuacct.usage") / 1e9
        if self.v2 is not None and "cpu" not in self.v1:
            return read_field(self.v2 / "cpu.stat", "usage_usec") / 1e6
        return None

    def _set_frozen(self, frozen: bool) -> None:
        if (path := self.v2) is not None:
            write_value(path / "cgroup.freeze", "1" if frozen else "0")
            _wait(lambda: read_field(path / "cgroup.events", "frozen") == int(frozen))
            return
        if (found := self._v1("freezer")) is None:
            raise errors.Unsupported("This machine has no freezer.")
        state, wanted = found / "freezer.state", "FROZEN" if frozen else "THAWED"

        def arrived() -> bool:
            return state.read_text().strip() == wanted

        # A concurrent fork can leave the v1 freezer in FREEZING for ever; writing again resolves that.
        write_value(state, wanted)
        _wait(arrived, again=lambda: write_value(state, wanted))

    def paths(self) -> list[Path]:
        """Its directories, one per hierarchy."""
        return sorted({*self.v1.values(), *([self.v2] if self.v2 else [])})

    def _v1(self, controller: str) -> Path | None:
        return self.v1.get(controller)

    def _v2(self, controller: str) -> Path | None:
        return self.v2 if controller in self.v2_controllers else None


def _own_groups(text: str) -> dict[str, str]:
    """Parses ``4:memory:/path``: path by controller; v2 has an empty name."""
    own: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def _mounts(text: str) -> list[tuple[Path, str, frozenset[str]]]:
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((Path(left.split(" ")[4]), kind, frozenset(options.split(","))))
    return found


def _below(mount: Path, group: str) -> Path:
    path = mount / group.lstrip("/")
    return path if path.is_dir() else mount  # in a container the mount's root is this process's group


def _usable(place: Path, name: str) -> Path | None:
    """The parent of Paddock's groups; None if this process may not create it."""
    path = place / name
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK) else None


def _delegate(place: Path, wanted: frozenset[str]) -> frozenset[str]:
    """Enable the controllers for the groups below ``place``; returns those that the kernel grants.

    A group that delegates controllers may not contain processes, so this process moves into a leaf group beside the
    sandboxes'.
    """
    with contextlib.suppress(OSError):
        wanted &= frozenset((place.parent / "cgroup.controllers").read_text().split())
        shared = frozenset((place.parent / "cgroup.subtree_control").read_text().split())
        # the root group is exempt from that rule
        if not wanted <= shared and place.parent.joinpath("cgroup.type").exists():
            leaf = place.parent / _SERVER_LEAF
            leaf.mkdir(exist_ok=True)
            _try_write(leaf / "cgroup.procs", "0")
    for path in (place.parent, place):
        for controller in wanted:
            _try_write(path / "cgroup.subtree_control", f"+{controller}")
    _try_write(place.parent / _SERVER_LEAF / "cpu.weight", _SERVER_WEIGHT)
    with contextlib.suppress(OSError):
        return frozenset((place / "cgroup.subtree_control").read_text().split()) & wanted
    return frozenset()


def _try_write(path: Path, text: str) -> None:
    """For settings that some kernels lack and that nothing depends on."""
    with contextlib.suppress(OSError, errors.ProviderUnavailable):
        write_value(path, text)


def _wait(arrived: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + _FREEZE_TIMEOUT_S
    rewrite = time.monotonic() + _REWRITE_AFTER_S
    pause = 0.0001
    while not arrived():
        now = time.monotonic()
        if now > deadline:
            raise errors.ProviderUnavailable("The freezer did not finish in time.")
        if now > rewrite:
            again()
            rewrite = now + _REWRITE_AFTER_S
        time.sleep(pause)
        pause = min(pause * 2, 0.005)


def _remove(path: Path, deadline: float) -> None:
    pause = 0.0005
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise errors.ProviderUnavailable(f"A control group could not be removed: {error}") from error
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _pids(path: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    return []
