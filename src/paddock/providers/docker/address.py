"""Where the engine is: what ``DOCKER_HOST`` says, or the first of the usual sockets that is there."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paddock import errors

_DEFAULT = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Address:
    socket: str | None
    """The path of a unix socket; None: ``url`` says it all."""
    url: str

    @classmethod
    def parse(cls, given: str) -> Address:
        """Of ``DOCKER_HOST``; empty means the usual places. An engine on another machine is refused."""
        if not given:
            return cls.unix(_usual())
        parts = urlsplit(given)
        if parts.scheme == "unix" and parts.path:
            return cls.unix(parts.path)
        if parts.scheme in {"tcp", "http"} and parts.hostname:
            if not _is_this_machine(parts.hostname):
                raise errors.ProviderRefused(
                    f"DOCKER_HOST={given!r} is an engine on another machine. Paddock hands its agent to containers "
                    "through a directory that both can see, so the engine must run on this machine: use its unix "
                    "socket, or run Paddock beside that engine."
                )
            return cls(None, f"http://{parts.hostname}:{parts.port or 2375}")
        raise errors.ProviderRefused(
            f"DOCKER_HOST={given!r} is not understood: unix:///path/to/docker.sock, or tcp://127.0.0.1:2375."
        )

    @classmethod
    def unix(cls, path: str) -> Address:
        return cls(path, "http://docker")

    def __str__(self) -> str:
        return self.socket or self.url


def _usual() -> str:
    """Docker's own, then those of engines without root, then Podman's."""
    own = f"/run/user/{os.getuid()}"
    places = (_DEFAULT, f"{own}/docker.sock", "/run/podman/podman.sock", f"{own}/podman/podman.sock")
    return next((place for place in places if _is_socket(place)), _DEFAULT)


def _is_socket(place: str) -> bool:
    try:
        return Path(place).is_socket()
    except PermissionError:
        return False


def _is_this_machine(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
