"""Where the engine is: what ``DOCKER_HOST`` says, or the first of the usual sockets that is there."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paddock import errors

_DEFAULT = "/var/run/docker.sock"
_PLAIN_PORT, _TLS_PORT = 2375, 2376


@dataclass(frozen=True, slots=True)
class Address:
    socket: str | None
    """The path of a unix socket; None: ``url`` says it all."""
    url: str
    certificates: Path | None = None
    """The folder of ``ca.pem``, ``cert.pem`` and ``key.pem``, where the engine is spoken to by TLS."""

    @classmethod
    def parse(cls, given: str, tls_verify: str = "", cert_path: str = "") -> Address:
        """Of ``DOCKER_HOST``, ``DOCKER_TLS_VERIFY`` and ``DOCKER_CERT_PATH``; empty means the usual places."""
        if not given:
            return cls.unix(_usual())
        parts = urlsplit(given)
        if parts.scheme == "unix" and parts.path:
            return cls.unix(parts.path)
        if parts.scheme == "ssh":
            raise errors.ProviderRefused(
                f"DOCKER_HOST={given!r}: Paddock does not speak SSH itself. Let ssh carry the engine's socket (ssh -NL "
                "/run/far-docker.sock:/var/run/docker.sock HOST), and set DOCKER_HOST=unix:///run/far-docker.sock and "
                "PADDOCK_DOCKER_WAY=far."
            )
        if parts.scheme in {"tcp", "http", "https"} and parts.hostname:
            return cls._over_network(given, tls=bool(tls_verify) or parts.scheme == "https", cert_path=cert_path)
        raise errors.ProviderRefused(
            f"DOCKER_HOST={given!r} is not understood: unix:///path/to/docker.sock, or tcp://host:{_TLS_PORT}."
        )

    @classmethod
    def _over_network(cls, given: str, *, tls: bool, cert_path: str) -> Address:
        parts = urlsplit(given)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        if tls:
            folder = Path(cert_path).expanduser() if cert_path else Path.home() / ".docker"
            return cls(None, f"https://{host}:{parts.port or _TLS_PORT}", folder)
        if not _is_this_machine(parts.hostname or ""):
            raise errors.ProviderRefused(
                f"DOCKER_HOST={given!r} is an engine on another machine, without TLS: whoever is on the way there "
                "would have root's power over it. Set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH."
            )
        return cls(None, f"http://{host}:{parts.port or _PLAIN_PORT}")

    @classmethod
    def unix(cls, path: str) -> Address:
        return cls(path, "http://docker")

    def context(self) -> ssl.SSLContext | None:
        """None: it is not spoken to by TLS."""
        if self.certificates is None:
            return None
        own = self.certificates
        try:
            made = ssl.create_default_context(cafile=str(own / "ca.pem"))
            made.load_cert_chain(own / "cert.pem", own / "key.pem")
        except (OSError, ssl.SSLError) as error:
            raise errors.ProviderRefused(
                f"The engine at {self} is spoken to by TLS, for which DOCKER_CERT_PATH must be a folder with ca.pem, "
                f"cert.pem and key.pem. In {own}: {error}"
            ) from error
        return made

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
