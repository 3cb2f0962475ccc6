"""Control groups: limits, freezer and numbers of one sandbox, on v1, v2, both at once, or a delegated part of v2.

What this machine has is found once (``Cgroups.find``); a machine that lets us have none still runs sandboxes, with
rlimits only, and says so in their isolation report.
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
_OWN = Path("/proc/self/cgroup")
_SERVER_LEAF = "paddock-server"
_SERVER_WEIGHT = "1000"
"""Ten times that of all sandboxes together: what every one of them waits for must not wait for one of them."""
_SANDBOXES_SHARES = "256"
"""Of all sandboxes together on v1, where each of the host's own processes has 1024: they have what the host leaves. A
quarter, because the kernel was seen to let a group of fork bombs run for 200 ms while the host's threads waited."""
_FREEZE_SECONDS = 5.0
_REWRITE_SECONDS = 0.05
_REMOVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The places below which a group per sandbox can be made: by v1 controller, and of v2."""

    v1: Mapping[str, Path]
    v2: Path | None
    v2_controllers: frozenset[str]

    @classmethod
    def find(cls, name: str) -> Cgroups:
        """Where this process may make groups; ``name`` is the parent of all of ours."""
        own = _own_groups(_OWN.read_text())
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
            with contextlib.suppress(OSError):  # v2 freezes and kills better, also where it has no controllers
                unused.rmdir()
        if (cpu := v1.get("cpu")) is not None:
            _try_write(cpu / "cpu.shares", _SANDBOXES_SHARES)
        controllers = _delegate(v2, frozenset({"memory", "cpu", "pids"}) - v1.keys()) if v2 else frozenset()
        return cls(v1, v2, controllers)

    @property
    def limits(self) -> frozenset[str]:
        """Which of memory, cpu and pids are limited hard here."""
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
        """Groups that a crash left behind. One that still holds processes is somebody's."""
        for place in {*self.v1.values(), *([self.v2] if self.v2 else [])}:
            for entry in place.iterdir():
                if entry.is_dir() and entry.name not in keep:
                    with contextlib.suppress(OSError):
                        entry.rmdir()

    def leave(self) -> None:
        """Take the parent away too, where no sandbox is left in it."""
        for place in {*self.v1.values(), *([self.v2] if self.v2 else [])}:
            with contextlib.suppress(OSError):
                place.rmdir()


@dataclass(frozen=True, slots=True)
class CgroupHandle:
    """The group of one sandbox, in every hierarchy at once. Kept with it: a later server may live in another group."""

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
            write_value(path / "pids.max", str(resources.pids + 1))  # the agent is one of them

    @property
    def limits(self) -> frozenset[str]:
        """Which of memory, cpu and pids are limited hard by it."""
        return (self.v2_controllers | self.v1.keys()) & {"memory", "cpu", "pids"}

    def doors(self) -> list[str]:
        """What the launcher writes itself into, of v1."""
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
        """Everything in it, at once. False where only the sandbox's first process can be killed."""
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
                write_value(path / "freezer.state", "THAWED")  # a frozen process dies when it is thawed
        return False

    def remove(self) -> None:
        """After its processes were killed: the kernel lets go of them a moment later."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        for path in self.paths():
            _remove(path, deadline)

    def processes(self) -> int | None:
        path = self._v1("pids") or self._v2("pids")
        return None if path is None else max(0, read_number(path / "pids.current") - 1)

    def memory(self) -> int | None:
        """What it really holds: without the page cache that the kernel gives back when asked."""
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
        """How many of its processes the kernel has killed for want of memory."""
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

        # A fork at the wrong moment can leave the v1 freezer in FREEZING for ever; writing once more frees it.
        write_value(state, wanted)
        _wait(arrived, again=lambda: write_value(state, wanted))

    def paths(self) -> list[Path]:
        """Its directories, one in each hierarchy."""
        return sorted({*self.v1.values(), *([self.v2] if self.v2 else [])})

    def _v1(self, controller: str) -> Path | None:
        return self.v1.get(controller)

    def _v2(self, controller: str) -> Path | None:
        return self.v2 if controller in self.v2_controllers else None


def _own_groups(text: str) -> dict[str, str]:
    """``4:memory:/path`` by controller; v2 under the empty name."""
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
    return path if path.is_dir() else mount  # in a container the mount's own root is our group


def _usable(place: Path, name: str) -> Path | None:
    """The parent of our groups; None where we may not make one."""
    path = place / name
    try:
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK) else None


def _delegate(place: Path, wanted: frozenset[str]) -> frozenset[str]:
    """Turn the controllers on for the groups below ``place``; those that the kernel grants.

    A group that shares its controllers out may hold no processes itself, so this one steps into a leaf beside ours.
    """
    with contextlib.suppress(OSError):
        wanted &= frozenset((place.parent / "cgroup.controllers").read_text().split())
        shared = frozenset((place.parent / "cgroup.subtree_control").read_text().split())
        if not wanted <= shared and place.parent.joinpath("cgroup.type").exists():  # the root has no such rule
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
    """For what some kernels do not have and nothing depends on."""
    with contextlib.suppress(OSError, errors.ProviderUnavailable):
        write_value(path, text)


def _wait(arrived: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + _FREEZE_SECONDS
    rewrite = time.monotonic() + _REWRITE_SECONDS
    pause = 0.0001
    while not arrived():
        now = time.monotonic()
        if now > deadline:
            raise errors.ProviderUnavailable("The freezer did not finish in time.")
        if now > rewrite:
            again()
            rewrite = now + _REWRITE_SECONDS
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
