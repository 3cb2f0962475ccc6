"""How each registry is reached: its mirrors, its CA, whether by plain HTTP, and with which credentials.

``registries.json`` in the server's home, which only its owner may read::

    {"docker.io": {"mirrors": ["https://mirror.example"]},
     "registry.example:5000": {"ca": "/etc/ssl/own.pem", "username": "ci", "password": "…"},
     "localhost:5000": {"plain_http": true}}

Credentials that are not there come from Docker's ``config.json`` and the programs that it names. They stay here:
nothing of them is written anywhere else or enters a sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paddock import errors
from paddock.images.reference import DOCKER_HUB

FILE = "registries.json"
_HUB_API = "registry-1.docker.io"
_HUB_CREDENTIALS = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_HELPER_TIMEOUT_S = 30.0
_TOKEN_USER = "<token>"  # noqa: S105 - the name that helpers give to identity tokens
_KEYS = {"mirrors", "ca", "plain_http", "username", "password"}


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str = field(repr=False, default="")
    password: str = field(repr=False, default="")
    identity_token: str = field(repr=False, default="")

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    mirrors: tuple[str, ...] = ()
    ca: str = ""
    plain_http: bool = False
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place that speaks the registry protocol."""

    url: str
    """Without a path and a slash at the end."""
    name: str
    """The registry that this is, for settings and credentials."""
    ca: str
    mirrored: str | None = None
    """The registry that this is a mirror of."""


class Registries:
    def __init__(self, by_name: Mapping[str, RegistrySettings], docker_config: Path | None = None) -> None:
        self._by_name = by_name
        self._docker_config = docker_config

    @classmethod
    def load(cls, home: Path, docker_config: Path | None) -> Registries:
        """Raises Invalid with what is wrong in the file."""
        path = home / FILE
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as error:
            raise errors.Invalid(f"{path} cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise errors.Invalid(f"{path} must be a JSON object of registries.")
        return cls({name: _read(path, name, each) for name, each in found.items()}, docker_config)

    def endpoints(self, registry: str) -> list[Endpoint]:
        """Mirrors first; the registry itself is always the last."""
        own = self._by_name.get(registry, RegistrySettings())
        mirrors = [
            Endpoint(url, name, self._by_name.get(name, RegistrySettings()).ca, mirrored=registry)
            for url, name in ((mirror.rstrip("/"), urlsplit(mirror).netloc) for mirror in own.mirrors)
        ]
        host = _HUB_API if registry == DOCKER_HUB else registry
        return [*mirrors, Endpoint(f"{'http' if own.plain_http else 'https'}://{host}", registry, own.ca)]

    async def credentials(self, registry: str) -> Credentials | None:
        own = self._by_name.get(registry)
        if own is not None and own.credentials is not None:
            return own.credentials
        return await self._of_docker(registry)

    async def _of_docker(self, registry: str) -> Credentials | None:
        config = _docker_config(self._docker_config)
        names = [_HUB_CREDENTIALS, registry] if registry == DOCKER_HUB else [registry, f"https://{registry}"]
        helpers = config.get("credHelpers")
        for name in names:
            if isinstance(helpers, dict) and isinstance(helpers.get(name), str):
                return await _ask_helper(helpers[name], name)
        auths = config.get("auths")
        for name in names:
            entry = auths.get(name) if isinstance(auths, dict) else None
            if isinstance(entry, dict) and (found := _of_entry(entry)) is not None:
                return found
        if isinstance(store := config.get("credsStore"), str) and store:
            return await _ask_helper(store, names[0])
        return None


def _read(path: Path, name: str, found: Any) -> RegistrySettings:
    if not isinstance(found, dict) or not found.keys() <= _KEYS:
        raise errors.Invalid(f"{path}: {name!r} may have {', '.join(sorted(_KEYS))} and nothing else.")
    mirrors = found.get("mirrors", [])
    texts = [*(mirrors if isinstance(mirrors, list) else [None]), *(found.get(key, "") for key in _KEYS & {"ca"})]
    if not all(isinstance(text, str) for text in texts) or not isinstance(found.get("plain_http", False), bool):
        raise errors.Invalid(f"{path}: {name!r} has a value of the wrong type.")
    for mirror in mirrors:
        parts = urlsplit(mirror)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.username or parts.query:
            raise errors.Invalid(f"{path}: the mirror {mirror!r} of {name!r} is not an http or https URL.")
    credentials = None
    if "username" in found or "password" in found:
        credentials = Credentials(str(found.get("username", "")), str(found.get("password", "")))
    return RegistrySettings(tuple(mirrors), found.get("ca", ""), found.get("plain_http", False), credentials)


def _docker_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise errors.Invalid(f"Docker's {path} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _of_entry(entry: dict[str, Any]) -> Credentials | None:
    if isinstance(token := entry.get("identitytoken"), str) and token:
        return Credentials(identity_token=token)
    try:
        name, colon, password = base64.b64decode(str(entry.get("auth", ""))).decode().partition(":")
    except ValueError:
        return None
    return Credentials(name, password) if colon else None


async def _ask_helper(helper: str, registry: str) -> Credentials | None:
    """None where the helper has nothing for this registry."""
    if not _HELPER.fullmatch(helper):
        raise errors.Invalid(f"{helper[:80]!r} is not the name of a credential helper.")
    program = f"docker-credential-{helper}"
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(program, "get", stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise errors.RegistryDenied(f"The credential helper {program} cannot be started: {error.strerror}.") from None
    try:
        async with asyncio.timeout(_HELPER_TIMEOUT_S):
            said, _ = await process.communicate(registry.encode())
    except TimeoutError:
        raise errors.RegistryDenied(f"The credential helper {program} did not answer in time.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if b"credentials not found" in said:
        return None
    try:
        found = json.loads(said)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        raise errors.RegistryDenied(f"The credential helper {program} gave no credentials for {registry}.") from None
    return Credentials(identity_token=secret) if user == _TOKEN_USER else Credentials(user, secret)
