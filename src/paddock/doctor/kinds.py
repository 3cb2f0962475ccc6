"""The kinds of sandboxes under test: a provider, the requested isolation, and exemptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.clock import SystemClock
from paddock.doctor.exemptions import OF_A_CONTAINER, OF_A_GUEST, Exempt
from paddock.providers.base import IsolationLevel, Provider
from paddock.providers.docker.host import own_kernel
from paddock.providers.docker.provider import DockerProvider
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.providers.local.provider import LocalProvider
from paddock.settings import Settings


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
