"""Attacks on a whole server: by pages and links of a sandbox, by a member with a key, by text, by silent connections.

A server is started for them as its users start it, in a temporary folder and on a port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from paddock import errors
from paddock.doctor.attempts import Outcome, Verdict

_START_TIMEOUT_S = 120.0
_REQUEST_TIMEOUT_S = 120.0
_RESPONSIVE_S = 5.0
_MAX_SILENT = 2000
_SPARE_DESCRIPTORS = 256
_LEFT_OUT = ("PADDOCK_", "E2B_", "DAYTONA_", "DOCKER_")
_SETTINGS = frozenset({"HOST", "PORT", "DATABASE_URL", "SANDBOX_PROVIDER", "SANDBOX_PROVIDERS", "DEFAULT_TIMEOUT"})
_COMMAND = (sys.executable, "-c", "from paddock.cli.app import main; main()", "--json", "up")


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and two who use it."""

    url: str
    admin: httpx.AsyncClient
    member: httpx.AsyncClient
    home: Path
    """With its database and, in ``log``, what it wrote."""

    async def sandbox(self, **asked: Any) -> dict[str, Any]:
        made = await self.member.post("/sandboxes/create", json={"user_id": "doctor", **asked})
        made.raise_for_status()
        found: dict[str, Any] = made.json()
        return found

    async def tool(self, sandbox_id: str, name: str, **arguments: Any) -> None:
        path = f"/sandboxes/{sandbox_id}/tools/{name}"
        (await self.member.post(path, json={"arguments": arguments})).raise_for_status()


Attack = Callable[[Target], Awaitable[str | None]]
"""Gives what went wrong, or None."""

_DOCUMENTS = (
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    {"Sec-Fetch-Mode": "same-origin", "Sec-Fetch-Dest": "serviceworker", "Service-Worker": "script"},
    {"Upgrade-Insecure-Requests": "1"},
)


async def _page(target: Target) -> str | None:
    made = await target.sandbox()
    by_header = {"E2b-Sandbox-Id": made["key"], "E2b-Sandbox-Port": "3000"}
    for path, address in ((f"/p/{made['key']}/3000/", {}), ("/", by_header)):
        for wanted in _DOCUMENTS:
            answer = await target.member.get(path, headers={**address, **wanted})
            if answer.status_code != 403:
                return f"a browser is given a page of a sandbox on the API's origin ({answer.status_code}, {wanted})"
        answer = await target.member.get(path, headers=address)
        if "sandbox" not in answer.headers.get("Content-Security-Policy", ""):
            return "an answer on the API's origin may become a page of it"
    file = await target.member.get(f"/sandboxes/{made['sandbox_id']}/files", params={"path": "/etc/passwd"})
    if "sandbox" not in file.headers.get("Content-Security-Policy", ""):
        return "a file of a sandbox may become a page of the API's origin"
    docs = await target.member.get("/docs")
    if "persistAuthorization: false" not in docs.text or "script-src 'nonce-" not in docs.headers.get(
        "Content-Security-Policy", ""
    ):
        return "/docs keeps keys, or runs scripts of others"
    return None


async def _private_network(target: Target) -> str | None:
    there, name = "10.0.0.0/8", (await target.sandbox())["sandbox_id"]
    egress = {"mode": "proxy", "allow": [there]}
    asked = {
        "/sandboxes/create": {"user_id": "doctor", "egress": egress},
        "/e2b/sandboxes": {"templateID": "base", "network": {"allowOut": [there]}},
        "/daytona/api/sandbox": {"networkAllowList": there},
    }
    for path, body in asked.items():
        answer = await target.member.post(path, json=body)
        if answer.status_code != 403:
            return f"a member opens {there} by {path} ({answer.status_code})"
    changed = await target.member.put(f"/sandboxes/{name}/egress", json=egress)
    return None if changed.status_code == 403 else f"a member opens {there} for a sandbox ({changed.status_code})"


async def _oversized(target: Target) -> str | None:
    for resource in ("memory_mb", "cpu", "disk_mb", "pids"):
        body = {"user_id": "doctor", "resources": {resource: 1 << 40}}
        answer = await target.member.post("/sandboxes/create", json=body)
        if answer.status_code != 422:
            return f"a sandbox with {1 << 40} of {resource} is not refused ({answer.status_code})"
    return None


async def _costly_text(target: Target) -> str | None:
    name = (await target.sandbox())["sandbox_id"]
    await target.tool(name, "run_command", command=f"touch {'a' * 250}")
    await target.tool(name, "write_file", path="same", content="same\n" * 30_000)
    hunks = "@@\n same\n same\n-same\n+other\n" * 8_000
    fields = json.dumps({f"f{number}": 1 for number in range(80_000)})
    attacks = asyncio.gather(
        target.tool(name, "glob_files", pattern="*a*a*a*a*a*a*a*a b"),
        target.tool(name, "shell_run", command="head -c 1000000 /dev/zero | tr '\\0' x"),
        target.tool(name, "apply_patch", patch=f"*** Begin Patch\n*** Update File: same\n{hunks}*** End Patch"),
        target.tool(name, "edit_file", path="same", old_string=" same\n" * 15_000 + "x", new_string="y"),
        *(target.member.post("/sandboxes/create", content=fields) for _ in range(8)),
    )
    slowest = 0.0
    while not attacks.done():
        began = time.monotonic()
        await target.admin.get("/health")
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.05)
    await attacks
    return f"others waited {slowest:.1f} s for an answer" if slowest > _RESPONSIVE_S else None


async def _silent(target: Target) -> str | None:
    import resource

    most = min(_MAX_SILENT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_DESCRIPTORS)
    url = httpx.URL(target.url)
    with contextlib.ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(socket.create_connection((url.host, url.port or 80), timeout=_RESPONSIVE_S))
        answer = await target.member.get("/sandboxes", headers={"Connection": "close"}, timeout=_RESPONSIVE_S)
    return None if answer.status_code == 200 else f"who has a key is answered {answer.status_code}"


async def _undeletable(target: Target) -> str | None:
    """Processes that hear no signal, as many as there may be, and a full disk."""
    name = (await target.sandbox(resources={"pids": 64, "disk_mb": 64}))["sandbox_id"]
    fill = "trap '' TERM INT HUP; cat /dev/zero >/workspace/full; for i in $(seq 100); do sleep 1000 & done; kill -9 1"
    await target.tool(name, "run_command", command=f"sudo sh -c '{fill}' >/dev/null 2>&1", background=True)
    await asyncio.sleep(1)
    deleted = await target.member.delete(f"/sandboxes/{name}")
    status = (await target.member.get(f"/sandboxes/{name}")).json().get("status")
    if deleted.status_code != 200 or status != "deleted":
        return f"a sandbox cannot be deleted ({deleted.status_code}, then {status})"
    return None


async def _secrets(target: Target) -> str | None:
    name = (await target.sandbox())["sandbox_id"]
    password, ticket = secrets.token_hex(16), f"t_{secrets.token_hex(20)}"
    await target.member.post(
        "/sandboxes/create", json={"user_id": "doctor", "git_url": f"https://doctor:{password}@127.0.0.1:1/x.git"}
    )
    url = httpx.URL(target.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    asked = f"GET /sandboxes/{name}/terminal?ticket={ticket} HTTP/1.1\r\nHost: {url.host}\r\nConnection: Upgrade\r\n"
    asked += f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
    writer.write(asked.encode())
    await asyncio.wait_for(reader.read(1), _REQUEST_TIMEOUT_S)
    writer.close()
    (await target.admin.get("/sandboxes")).raise_for_status()
    written = await asyncio.to_thread(_written, target.home)
    for what, secret in (("a password", password), ("a ticket", ticket), ("a key", target.member.headers["X-API-Key"])):
        if found := [path for path, content in written.items() if secret.encode() in content]:
            return f"{what} was written into {found[0]}"
    return None


def _written(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "log", *home.glob("paddock.db*")) if path.is_file()}


SERVER_ATTACKS: dict[str, tuple[str, Attack]] = {
    "server-page": ("a page of a sandbox runs on the API's origin, and uses the keys of who looks at it", _page),
    "server-private-network": ("a member opens the operator's network to a sandbox", _private_network),
    "server-oversized": ("a sandbox is given more than the machine has", _oversized),
    "server-costly-text": ("text that costs much keeps the server from answering others", _costly_text),
    "server-silent-connections": ("connections that say nothing keep those with a key out", _silent),
    "server-undeletable": ("a sandbox resists its deletion", _undeletable),
    "server-secrets": ("passwords, tickets and keys are left in logs and in the database", _secrets),
}


async def attack_server(target: Target, name: str) -> Outcome:
    danger, attack = SERVER_ATTACKS[name]
    try:
        problem = await attack(target)
    except (httpx.HTTPError, OSError) as trouble:
        problem = f"the server did not answer as it should: {trouble or type(trouble).__name__}"
    if problem is None:
        return Outcome(name, "member", Verdict.REFUSED, f"not so: {danger}")
    return Outcome(name, "member", Verdict.NOT_REFUSED, problem)


@contextlib.asynccontextmanager
async def server_started() -> AsyncIterator[Target]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    with tempfile.TemporaryDirectory(prefix="paddock-doctor-") as folder:
        home = Path(folder)
        settings = {"PADDOCK_HOME": folder, "HOST": "127.0.0.1", "PORT": "0", "SANDBOX_PROVIDER": "local"}
        environment = {name: value for name, value in kept.items() if name not in _SETTINGS} | settings
        with (home / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND, env=environment, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                url = await _address(process)
            async with _users(url, home) as target:
                yield target
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """What it says of itself once it has a port; and then until it answers there."""
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


@contextlib.asynccontextmanager
async def _users(url: str, home: Path) -> AsyncIterator[Target]:
    def client(key: str) -> httpx.AsyncClient:
        headers = {"X-API-Key": key, "Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=_REQUEST_TIMEOUT_S)

    async with client((home / "key").read_text().strip()) as admin:
        (await admin.post("/users", json={"user_id": "doctor"})).raise_for_status()
        made = await admin.post("/keys", json={"user_id": "doctor", "name": "doctor"})
        async with client(made.raise_for_status().json()["key"]) as member:
            try:
                yield Target(url, admin, member, home)
            finally:
                for sandbox in (await admin.get("/sandboxes")).json()["sandboxes"]:
                    await admin.delete(f"/sandboxes/{sandbox['sandbox_id']}")
