"""The attacked server: started as users start it, in a temporary directory and on a port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from paddock import errors
from paddock.doctor.kinds import SandboxKind

MAX_DESCRIPTORS = 1024
"""Maximum open files of the attacked server, so that an attack can exhaust them."""
REQUEST_TIMEOUT_S = 120.0
RESPONSIVE_S = 5.0
"""Maximum response time for other users during an attack."""
_START_TIMEOUT_S = 120.0
_OUTSIDE = "127.0.0.9"
"""An unused loopback address that stands for one of the internet."""
_LEFT_OUT = ("PADDOCK_", "E2B_", "DAYTONA_", "DOCKER_")
_SETTINGS = frozenset({"HOST", "PORT", "DATABASE_URL", "SANDBOX_PROVIDER", "SANDBOX_PROVIDERS", "DEFAULT_TIMEOUT"})
_LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); from paddock.cli.app import main; main()"
)


class NotTried(Exception):
    """The machine lacks something that the attack needs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server with two users."""

    url: str
    admin: httpx.AsyncClient
    member: httpx.AsyncClient
    home: Path
    """Contains its database and, in ``log``, its output."""
    client: Callable[[str], httpx.AsyncClient]
    """An HTTP client with this key."""
    pid: int
    descriptors: int
    """Its maximum number of open files."""
    outside: socket.socket
    """Bound to the address that stands for the internet; its sandboxes may connect to it."""

    @property
    def key(self) -> str:
        """The member's key."""
        return str(self.member.headers["X-API-Key"])

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        return url.host, url.port or 80

    def stranger(self) -> httpx.AsyncClient:
        """An HTTP client without a key."""
        return httpx.AsyncClient(base_url=self.url, timeout=REQUEST_TIMEOUT_S)

    async def sandbox(self, **asked: Any) -> dict[str, Any]:
        made = await self.member.post("/sandboxes/create", json={"user_id": "doctor", **asked})
        made.raise_for_status()
        found: dict[str, Any] = made.json()
        return found

    async def tool(self, sandbox_id: str, name: str, **arguments: Any) -> dict[str, Any]:
        path = f"/sandboxes/{sandbox_id}/tools/{name}"
        answer = await self.member.post(path, json={"arguments": arguments})
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    async def clear(self) -> None:
        """Delete all sandboxes, so that attacks do not affect each other."""
        for sandbox in (await self.admin.get("/sandboxes")).raise_for_status().json()["sandboxes"]:
            await self.admin.delete(f"/sandboxes/{sandbox['sandbox_id']}")

    async def user(self, user_id: str, **quota: float) -> httpx.AsyncClient:
        """Another user, with its own limits."""
        (await self.admin.post("/users", json={"user_id": user_id, "quota": quota})).raise_for_status()
        made = await self.admin.post("/keys", json={"user_id": user_id, "name": user_id})
        return self.client(made.raise_for_status().json()["key"])


Attack = Callable[[Target], Awaitable[str | None]]
"""Returns what went wrong, or None."""


@contextlib.asynccontextmanager
async def server_started(kind: SandboxKind) -> AsyncIterator[Target]:
    """A server whose sandboxes are of this kind."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Half of the permitted number: an attack by connections needs as many of its own.
    descriptors = MAX_DESCRIPTORS if most_files == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, most_files // 2)
    command = (sys.executable, "-c", _LIMITED.format(descriptors), "--json", "up")
    with tempfile.TemporaryDirectory(prefix="paddock-doctor-") as folder, outside_bound() as outside:
        home = Path(folder)
        with (home / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, env=_environment(home, kind, outside), cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                url = await _address(process)
            async with _users(url, home) as (admin, member):
                target = Target(url, admin, member, home, partial(_client, url), process.pid, descriptors, outside)
                try:
                    yield target
                finally:
                    await target.clear()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@contextlib.contextmanager
def outside_bound() -> Iterator[socket.socket]:
    with socket.socket() as outside:
        outside.bind((_OUTSIDE, 0))
        yield outside


def _environment(home: Path, kind: SandboxKind, outside: socket.socket) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in _SETTINGS and not name.startswith(_LEFT_OUT)
    }
    return kept | {
        "PADDOCK_HOME": str(home),
        "HOST": "127.0.0.1",
        "PORT": "0",
        **kind.settings,
        "PADDOCK_EGRESS_REACHABLE": f"{_OUTSIDE}:{outside.getsockname()[1]}",
    }


async def _address(process: asyncio.subprocess.Process) -> str:
    """The address that the server publishes once it has a port; returns when it answers there."""
    assert process.stdout is not None  # noqa: S101
    said = b""
    while (line := await process.stdout.readline()) != b"":
        said += line
        with contextlib.suppress(ValueError):
            url: str = json.loads(said)["url"]
            await _ready(url)
            return url
    raise errors.Unavailable("The server of the doctor's own did not start.")


async def _ready(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/health")).status_code == 200:
                    return
            await asyncio.sleep(0.1)


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"X-API-Key": key, "Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=REQUEST_TIMEOUT_S)


@contextlib.asynccontextmanager
async def _users(url: str, home: Path) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    async with _client(url, (home / "key").read_text().strip()) as admin:
        (await admin.post("/users", json={"user_id": "doctor"})).raise_for_status()
        made = await admin.post("/keys", json={"user_id": "doctor", "name": "doctor"})
        async with _client(url, made.raise_for_status().json()["key"]) as member:
            yield admin, member


PULSE_S = 0.05
_ROUNDS = 3


async def stalled(target: Target, attack: Callable[[], Awaitable[str | None]]) -> str | None:
    """Run an attack, which reports its own failures. It is repeated after a stall, because other load of the machine
    may cause one, but not repeatedly."""
    for _ in range(_ROUNDS):
        if (problem := await _stalled_once(target, attack)) is None:
            return None
    return problem


async def _stalled_once(target: Target, attack: Callable[[], Awaitable[str | None]]) -> str | None:
    before = await _stalls(target)
    attacking = asyncio.ensure_future(attack())
    slowest = 0.0
    try:
        while not attacking.done():
            began = time.monotonic()
            await target.admin.get("/health")
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(PULSE_S)
        if (problem := attacking.result()) is not None:
            return problem
    finally:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    if stalls := await _stalls(target) - before:
        return f"the event loop was blocked {stalls} times, and others waited {slowest:.1f} s for an answer"
    return f"others waited {slowest:.1f} s for an answer" if slowest > RESPONSIVE_S else None


async def _stalls(target: Target) -> int:
    return int((await target.admin.get("/health")).raise_for_status().json()["loop_stalls"])
