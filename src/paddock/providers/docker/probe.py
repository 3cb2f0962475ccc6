"""Whether an engine answers; asked before a server chooses its provider, and by ``paddock doctor``."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from paddock import errors
from paddock.providers.docker.address import Address
from paddock.providers.docker.host import chosen_far
from paddock.settings import Settings

_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the settings say of the engine."""

    host: str
    tls_verify: str = ""
    cert_path: str = ""
    way: str = "auto"
    runtime: str = ""

    @classmethod
    def of(cls, settings: Settings) -> EngineOptions:
        return cls(
            settings.docker_host,
            settings.docker_tls_verify,
            settings.docker_cert_path,
            settings.docker_way,
            settings.docker_runtime,
        )


@dataclass(frozen=True, slots=True)
class EngineProbe:
    engine: str
    """Where it is, which, and how its containers are reached; empty where there is none."""
    problem: str | None


def check(asked: EngineOptions) -> EngineProbe:
    """Blocking, for a moment at most."""
    try:
        address = Address.parse(asked.host, asked.tls_verify, asked.cert_path)
        transport = httpx.HTTPTransport(uds=address.socket, verify=address.context() or True)
    except errors.PaddockError as error:
        return EngineProbe("", error.message)
    try:
        with httpx.Client(transport=transport, base_url=address.url, timeout=_SECONDS, trust_env=False) as client:
            said = client.get("/version").raise_for_status().json()
            way = "far" if chosen_far(asked.way, address.socket is not None, asked.runtime) else "near"
            return EngineProbe(f"{said.get('Version', 'an engine')} at {address}, {way}", None)
    except (httpx.HTTPError, OSError, ValueError, AttributeError) as error:
        return EngineProbe("", f"No engine answers at {address} ({error}). Start one, or set DOCKER_HOST.")
