"""Whether an engine answers; asked before a server chooses its provider, and by ``paddock doctor``."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from paddock import errors
from paddock.providers.docker.address import Address

_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    engine: str
    """Where it is, and which; empty where there is none."""
    problem: str | None


def check(docker_host: str) -> Answer:
    """Blocking, for a moment at most."""
    try:
        address = Address.parse(docker_host)
    except errors.PaddockError as error:
        return Answer("", error.message)
    transport = httpx.HTTPTransport(uds=address.socket)
    try:
        with httpx.Client(transport=transport, base_url=address.url, timeout=_SECONDS, trust_env=False) as client:
            said = client.get("/version").raise_for_status().json()
            return Answer(f"{said.get('Version', 'an engine')} at {address}", None)
    except (httpx.HTTPError, OSError, ValueError, AttributeError) as error:
        return Answer("", f"No engine answers at {address} ({error}). Start one, or set DOCKER_HOST.")
