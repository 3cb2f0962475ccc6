"""The kinds of sandboxes under test: a provider, the requested isolation, and exemptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.clock import SystemClock
from paddock.doctor.attempts import USERS
from paddock.providers.base import IsolationLevel, Provider
from paddock.providers.docker.host import own_kernel
from paddock.providers.docker.provider import DockerProvider
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.providers.local.provider import LocalProvider
from paddock.settings import Settings

ROOT = ("root",)


@dataclass(frozen=True, slots=True)
class Exempt:
    reason: str
    users: tuple[str, ...] = USERS


_GUESTS_SETTINGS = Exempt("settings of the guest's kernel, without effect outside", ROOT)
_GUESTS_SCHEDULER = Exempt("the guest's own scheduler")
_GUESTS_NETWORK = Exempt("on the guest's own network, which has no route outside")
_GUEST_ENDS = Exempt("exceeding the guest's memory ends only the guest; its next use starts it from its files", ROOT)

OF_A_GUEST: Mapping[str, Exempt] = {
    "agent-memory-layout": Exempt("gVisor shows it to all users inside"),
    "agent-environment": Exempt("gVisor shows it to all users inside; it contains only a PATH"),
    "agent-descriptors": Exempt("gVisor allows that; a user with sudo can do the same"),
    "agent-oom-score": Exempt("the guest's kernel stores the number without using it", ROOT),
    "agent-settings": Exempt("files that the guest's kernel stores without using them", ROOT),
    "users-own": Exempt("a guest needs no ids of its own inside: those outside are the sandbox's own range"),
    "users-foreign-ids": Exempt("ids inside are the guest's; outside it has the sandbox's own range", ROOT),
    "filter-changed-call": Exempt("a tracer may do what its own program may not; the guest's kernel handles both"),
    "cgroup-tree": Exempt("control groups of the guest's kernel; the host's limit the whole guest", ROOT),
    "device-fuse": Exempt("the guest's kernel has such a device itself"),
    "device-tunnel": Exempt("the guest's kernel has such a device itself, and no network behind it"),
    "device-permissions": Exempt("the guest's own device file", ROOT),
    "proc-sysrq": Exempt("the guest's kernel has the file, without effect", ROOT),
    "proc-memory-settings": _GUESTS_SETTINGS,
    "proc-kernel-settings": _GUESTS_SETTINGS,
    "proc-network-settings": _GUESTS_SETTINGS,
    "priority-real-time": _GUESTS_SCHEDULER,
    "priority-raise": _GUESTS_SCHEDULER,
    "oom-immunity": Exempt("among processes of the guest only"),
    "socket-mark": _GUESTS_NETWORK,
    "socket-transparent": _GUESTS_NETWORK,
    "network-interface-flags": Exempt("the guest's own loopback"),
    "file-api-agent-inside": Exempt("the agent's program, which is no secret"),
    "file-api-agent-descriptors": Exempt("a user with sudo can do the same", ROOT),
    "bomb-memory": _GUEST_ENDS,
    "bomb-memory-file": _GUEST_ENDS,
    "bomb-shared-memory": _GUEST_ENDS,
    "bomb-socket-buffers": _GUEST_ENDS,
    "bomb-zombies": _GUEST_ENDS,
    "bomb-fork": _GUEST_ENDS,
}
"""At level ``hardened``: gVisor's kernel answers, with data of the guest only."""

OF_A_CONTAINER: Mapping[str, Exempt] = {
    "host-credentials": Exempt("a path of the image's own, with what the image has there"),
    "host-records": Exempt("a path of the image's own, with what the image has there"),
    "users-own": Exempt("the engine maps no ids; userns-remap or an engine without root does"),
    "users-foreign-ids": Exempt("the engine maps no ids; userns-remap or an engine without root does", ROOT),
    "device-permissions": Exempt("the device file of the container's own /dev", ROOT),
    "sys-disks": Exempt("the engine shows /sys of the host, read-only: names and sizes of its disks can be read"),
    "sys-network": Exempt("the addresses of the container's own loopback"),
    "allowance-terminals": Exempt(
        "the kernel counts the terminals of all containers together; the host has some of its own", ROOT
    ),
}
"""On Docker: decided by the engine."""


@dataclass(frozen=True, slots=True)
class SandboxKind:
    name: str
    build: Callable[[Path], Provider]
    """Creates the provider for an installation with this home."""
    settings: Mapping[str, str]
    """Settings with which a server creates sandboxes of this kind."""
    level: IsolationLevel | None = None
    """The isolation level that its sandboxes request."""
    exempt: Mapping[str, Exempt] = field(default_factory=dict)
    """By name of the attempt."""
    slowness: int = 1
    """Factor for the time that a bomb takes to reach its limit."""


def local() -> SandboxKind:
    """At the level that this machine gives by default."""
    return SandboxKind("local", lambda home: LocalProvider(home / "local"), {"SANDBOX_PROVIDER": "local"})


def hardened(runsc: RunscSettings) -> SandboxKind:
    settings = {
        "SANDBOX_PROVIDER": "local",
        "PADDOCK_MIN_ISOLATION": IsolationLevel.HARDENED.value,
        "PADDOCK_RUNSC": runsc.program,
        "PADDOCK_RUNSC_PLATFORM": runsc.platform,
    }
    return SandboxKind(
        "local",
        lambda home: LocalProvider(home / "local", runsc=runsc),
        settings,
        level=IsolationLevel.HARDENED,
        exempt=OF_A_GUEST,
        slowness=3,
    )


def docker(settings: Settings) -> SandboxKind:
    """With the engine, images and runtime of the settings."""

    def build(home: Path) -> Provider:
        return DockerProvider.from_settings(
            settings.model_copy(update={"home": home, "egress_reachable": ()}), SystemClock()
        )

    guest = own_kernel(settings.docker_runtime)
    return SandboxKind(
        "docker",
        build,
        {"SANDBOX_PROVIDER": "docker", **_of_docker(settings)},
        exempt={**OF_A_GUEST, **OF_A_CONTAINER} if guest else OF_A_CONTAINER,
        slowness=3 if guest else 1,
    )


def _of_docker(settings: Settings) -> Mapping[str, str]:
    return {
        "DOCKER_HOST": settings.docker_host,
        "DOCKER_TLS_VERIFY": settings.docker_tls_verify,
        "DOCKER_CERT_PATH": settings.docker_cert_path,
        "PADDOCK_DOCKER_IMAGES": ",".join(settings.docker_images),
        "PADDOCK_DOCKER_ANY_IMAGE": str(settings.docker_any_image),
        "PADDOCK_DOCKER_PULL": str(settings.docker_pull),
        "PADDOCK_DOCKER_READ_ONLY": str(settings.docker_read_only),
        "PADDOCK_DOCKER_RUNTIME": settings.docker_runtime,
        "PADDOCK_DOCKER_WAY": settings.docker_way,
    }
