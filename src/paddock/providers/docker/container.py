"""What a container is made with: as little as the agent needs, and every limit that the engine has."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.providers.base import Resources, SandboxSpec
from paddock.providers.common import certificates
from paddock.providers.common.confinement import AGENT, CAPABILITIES, INSIDE, MASKED, NO_CORE, OPEN_FILES, READ_ONLY

PROGRAMS = f"{INSIDE}/bin"
START_DIRECTORY = f"{INSIDE}/birth"
"""Of the host, with the socket at which an agent that starts asks for its descriptors."""
START_SOCKET = "server.sock"
AGENT_FILE, SUDO_FILE, FILTERS_FILE, TOKEN_FILE = "paddock-agent", "sudo", "filters", "token"
BRIDGE = f"{INSIDE}/bridge.sock"
AUTHORITIES = f"{PROGRAMS}/{certificates.FILE}"
"""The certificate authorities, where the operator added some; with the programs, so that both ways bring them."""
FAR_COMMAND = (f"{PROGRAMS}/{AGENT_FILE}", "trunk", BRIDGE, f"{PROGRAMS}/{FILTERS_FILE}", "45")
"""What the engine runs inside where there is no other way to the agent."""
KEEP = "/var/lib/paddock"
"""Where the agent keeps records and output: in the container's own layer, so that they count as its disk."""
INSTALLATION = "paddock.installation"
SANDBOX = "paddock.sandbox"
VOLUME_LABEL = "paddock.kit"

_MASKED = (*MASKED, "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/cgroup", "/sys/kernel")
_COUNTED_BY_USER = {"sigpending": resource.RLIMIT_SIGPENDING, "msgqueue": resource.RLIMIT_MSGQUEUE}
"""Counted by user over all containers and the host, where the same users keep the other half of what they may have."""
_SHM_MB = 64
_PERIOD = 100_000
_CPU_SHARES = 512
"""Half of what a service of the host has: where processors are scarce, the host and the server come first."""


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """What is the same for every container of an installation."""

    installation: str
    agent: Path
    runtime: str
    read_only: bool
    agent_volume: str | None = None
    """With the agent, where a container cannot see our files."""
    authorities: Path | None = None
    """The file of certificate authorities that its programs trust, where the operator added some."""
    here: bool = True
    """Whether the engine is on this machine, so that what holds for us holds for it."""


def body(
    settings: ContainerSettings, spec: SandboxSpec, start_directory: Path | None, *, hard_disk: bool
) -> dict[str, Any]:
    """For the engine's ``create``. ``start_directory``: where its agent asks for its descriptors; None: it is
    reached through the engine alone."""
    return {
        "Image": spec.template_id,
        **(_far_agent() if start_directory is None else _near_agent()),
        # Its first process takes no other, and nothing is lost by it that a longer wait would keep.
        "StopSignal": "SIGKILL",
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        # What an image would have the engine run inside from time to time is nobody's business but the user's.
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {INSTALLATION: settings.installation, SANDBOX: spec.sandbox_id},
        "HostConfig": {
            **limits(spec.resources),
            "NetworkMode": "none",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "CapDrop": ["ALL"],
            "CapAdd": list(CAPABILITIES),
            "SecurityOpt": ["no-new-privileges:true"],
            "MaskedPaths": list(_MASKED),
            "ReadonlyPaths": list(READ_ONLY),
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
            "ShmSize": min(_SHM_MB, max(1, spec.resources.memory_mb // 4)) << 20,
            "Ulimits": _ulimits(here=settings.here),
            "ReadonlyRootfs": settings.read_only,
            "Tmpfs": _tmpfs(settings.read_only),
            "Mounts": _mounts(settings, spec, start_directory),
            **({"Runtime": settings.runtime} if settings.runtime else {}),
            **({"StorageOpt": {"size": f"{spec.resources.disk_mb}m"}} if hard_disk else {}),
        },
    }


def limits(resources: Resources) -> dict[str, Any]:
    """Also what ``update`` takes."""
    memory = resources.memory_mb << 20
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "CpuShares": _CPU_SHARES,
        "CpuPeriod": _PERIOD,
        "CpuQuota": max(1000, int(resources.cpu * _PERIOD)),
        "PidsLimit": resources.pids,
    }


def _near_agent() -> dict[str, Any]:
    words = ["--birth", f"{START_DIRECTORY}/{START_SOCKET}"]
    return {"Entrypoint": [AGENT], "Cmd": ["serve", *words, "--keep", KEEP, "--mode", "range"]}


def _far_agent() -> dict[str, Any]:
    words = ["--bridge", BRIDGE, "--token", f"{PROGRAMS}/{TOKEN_FILE}", "--filter", f"{PROGRAMS}/{FILTERS_FILE}"]
    agent = f"{PROGRAMS}/{AGENT_FILE}"
    return {"Entrypoint": [agent], "Cmd": ["serve", *words, "--keep", KEEP, "--mode", "range"]}


def _ulimits(*, here: bool) -> list[dict[str, Any]]:
    if not here:
        return [_ulimit("nofile", _open_files()), _ulimit("core", NO_CORE)]
    plain = [_ulimit("nofile", _open_files()), _ulimit("core", NO_CORE), _ulimit("nproc", _any_processes())]
    ours = {name: resource.getrlimit(kind)[1] for name, kind in _COUNTED_BY_USER.items()}
    return plain + [_ulimit(name, most // 2) for name, most in ours.items() if most != resource.RLIM_INFINITY]


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def _open_files() -> int:
    """Not more than we may have ourselves: an engine that was started like us could not give it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)


def _any_processes() -> int:
    """As many as there can be, since the kernel counts these by user, over all containers: ``PidsLimit`` is the limit.
    Unsaid, an engine with few privileges may ask the kernel for more than it has itself, and is refused."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    ids = int(Path("/proc/sys/kernel/pid_max").read_text())
    return ids if most == resource.RLIM_INFINITY else min(ids, most)


def _tmpfs(read_only: bool) -> Mapping[str, str]:
    found = {
        "/run": "rw,nosuid,nodev,noexec,size=16m,mode=755",
        INSIDE: "rw,nosuid,nodev,noexec,size=64k,mode=755",
    }
    if read_only:
        found["/tmp"] = "rw,nosuid,nodev,exec,size=256m,mode=1777"  # noqa: S108
    return found


def _mounts(settings: ContainerSettings, spec: SandboxSpec, start_directory: Path | None) -> list[dict[str, Any]]:
    if start_directory is None:
        volume = {"Type": "volume", "Source": settings.agent_volume, "Target": PROGRAMS, "ReadOnly": True}
        found = [{**volume, "VolumeOptions": {"NoCopy": True}}]
    else:
        ours = [
            (settings.agent, AGENT),
            (settings.agent, f"{PROGRAMS}/{SUDO_FILE}"),
            (start_directory, START_DIRECTORY),
        ]
        ours += [] if settings.authorities is None else [(settings.authorities, AUTHORITIES)]
        found = [_bind(source, target, read_only=True) for source, target in ours]
    if settings.read_only:
        # Without a name each is the container's own, and goes with it.
        found += [{"Type": "volume", "Target": target} for target in ("/workspace", "/home", KEEP)]
    return found + [_bind(Path(mount.source), mount.target, read_only=mount.read_only) for mount in spec.mounts]


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
