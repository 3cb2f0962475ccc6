"""What the engine gives a sandbox, from what it says about itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.providers.base import IsolationLevel, IsolationReport, Layer
from paddock.providers.common.confinement import CAPABILITIES

AUTO, NEAR, FAR = "auto", "near", "far"
"""The ways to an agent, and leave to choose."""


@dataclass(frozen=True, slots=True)
class EngineHost:
    memory: bool
    cpu: bool
    pids: bool
    mapped_ids: bool
    mandatory: str | None
    """AppArmor or SELinux, where the engine uses one."""
    read_only: bool
    runtime: str
    hard_disk: bool
    far: bool = False
    """Whether agents are reached through the engine alone."""

    @classmethod
    def of(cls, info: Mapping[str, Any], *, runtime: str, read_only: bool, far: bool = False) -> EngineHost:
        options = {option.removeprefix("name=").split(",")[0] for option in info.get("SecurityOptions") or ()}
        return cls(
            memory=bool(info.get("MemoryLimit")),
            # Podman answers older names, or none.
            cpu=bool(info.get("CpuCfsQuota", info.get("CPUCfsQuota", True))),
            pids=bool(info.get("PidsLimit", True)),
            mapped_ids=bool(options & {"userns", "rootless"}),
            mandatory=next(iter(sorted(options & {"apparmor", "selinux"})), None),
            read_only=read_only,
            runtime=runtime_of(info, runtime),
            hard_disk=False,
            far=far,
        )

    @property
    def level(self) -> IsolationLevel:
        """No more than ``standard``: containers share ids with each other, and with the host where none are mapped."""
        return IsolationLevel.STANDARD if self.memory and self.cpu and self.pids else IsolationLevel.BASIC

    def report(self) -> IsolationReport:
        return IsolationReport(self.level, tuple(self._layers()))

    def _layers(self) -> Iterator[Layer]:
        ids = "mapped by the engine, the same for all containers" if self.mapped_ids else _UNMAPPED
        yield Layer("user namespace", self.mapped_ids, ids)
        yield Layer("mount, pid, network, ipc, uts and cgroup namespaces", True, "its own of each, by the engine")
        yield Layer("network", True, "none but a loopback; what leaves is carried by Paddock")
        yield Layer("way to the agent", True, _FAR if self.far else _NEAR)
        above = "Paddock's own, above the engine's default profile"
        yield Layer("system call filter", True, f"{above}; {_TRUNK}" if self.far else above)
        yield Layer("no new privileges", True, "setuid programs and file capabilities give nothing")
        yield Layer("capabilities", True, f"all dropped but {len(CAPABILITIES)}, and those only for the sandbox's root")
        mandatory = self.mandatory or "the engine uses neither AppArmor nor SELinux"
        yield Layer("mandatory access control", self.mandatory is not None, mandatory)
        yield Layer(
            "own uid range", False, "all containers of an engine share one; the provider 'local' gives each its own"
        )
        for name, there in (("memory limit", self.memory), ("CPU limit", self.cpu), ("process limit", self.pids)):
            yield Layer(name, there, "cgroup, by the engine" if there else "the engine says it cannot on this machine")
        yield Layer("freezer", True, "the engine's pause")
        hard = "by the engine's storage driver" if self.hard_disk else self._soft()
        yield Layer("disk limit", self.hard_disk, hard)
        yield Layer(
            "read-only root", self.read_only, "set" if self.read_only else "PADDOCK_DOCKER_READ_ONLY=true for this"
        )
        own = own_kernel(self.runtime)
        shared = f"containers share the host's kernel (runtime {self.runtime or 'default'})"
        yield Layer("kernel of its own", own, f"by the engine's runtime {self.runtime}" if own else shared)

    def _soft(self) -> str:
        if self.read_only:
            return "none on volumes; keep the engine's data on xfs with pquota for a hard one"
        return "looked at every few seconds, not hard; keep the engine's data on xfs with pquota for a hard one"


_UNMAPPED = "none: its root is the host's root, with few capabilities; run the engine with userns-remap, or rootless"
_NEAR = "near: descriptors over a unix socket that this machine and the container share"
_FAR = "far: one exec of the engine carries it; no port is published, no directory of this machine is shared"
_TRUNK = "what carries the way to the agent begins under the latter alone, and installs the former"

_SHARING = frozenset({"runc", "crun", "youki", "nvidia", "io.containerd.runc.v2"})
_OWN_KERNEL = ("runsc", "kata", "gvisor")


def runtime_of(info: Mapping[str, Any], chosen: str) -> str:
    """By which name the engine knows it; empty where it does not say."""
    return chosen or str(info.get("DefaultRuntime") or "").rpartition("/")[2]


def chosen_far(way: str, by_socket: bool, runtime: str) -> bool:
    """Near works on one machine, with a runtime whose containers get to the host's unix sockets."""
    if way != AUTO:
        return way == FAR
    return not by_socket or bool(runtime and runtime not in _SHARING)


def own_kernel(runtime: str) -> bool:
    return any(sign in runtime for sign in _OWN_KERNEL)
