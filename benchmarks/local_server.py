"""A complete Paddock server with the local provider, and the API calls that are measured."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.wire import Wire, request
from paddock.providers.local import LocalProvider

HOST_TEMPLATE = "host"
ECHO = "/bin/echo hi"
_PADDOCK = "from paddock.cli.app import main; main()"
_START_SECONDS = 60.0
_FILL_SECONDS = 120.0
_SPARE = 2
"""Machines in the pool in addition to the measured ones, so that the last one is not a special case."""


@dataclass(frozen=True, slots=True)
class Template:
    """The template of the sandboxes; ``folder`` is None for the host's own system."""

    name: str = HOST_TEMPLATE
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class LocalServer:
    home: Path
    template: Template
    port: int
    pid: int
    key: str

    async def wires(self, count: int) -> list[Wire]:
        return [await Wire.open(self.port) for _ in range(count)]

    async def create(self, wire: Wire, **wishes: Any) -> str:
        body = {"user_id": "bench", "template_id": self.template.name, **wishes}
        answer = await wire.ask(request("POST", "/sandboxes/create", self.key, body))
        return str(json.loads(answer)["sandbox_id"])

    def command(self, sandbox_id: str, command: str = ECHO) -> bytes:
        return request("POST", "/sandboxes/run-command", self.key, {"sandbox_id": sandbox_id, "command": command})

    async def hello(self, wire: Wire, sandbox_id: str, command: str = ECHO) -> float:
        """Run one command; returns its duration in seconds."""
        message = self.command(sandbox_id, command)
        started = time.perf_counter()
        answer = await wire.ask(message)
        taken = time.perf_counter() - started
        if json.loads(answer)["stdout"] != "hi\n":
            raise RuntimeError(f"the command said something else: {answer!r}")
        return taken

    async def first_output(self, wire: Wire) -> tuple[float, str]:
        """Create a sandbox and run a command in it; returns the seconds until its output, and the sandbox's id."""
        started = time.perf_counter()
        sandbox_id = await self.create(wire)
        await self.hello(wire, sandbox_id)
        return time.perf_counter() - started, sandbox_id

    async def first_output_at_once(self, wire: Wire) -> tuple[float, str]:
        """The same in one request, with the command as part of the create."""
        body = {"user_id": "bench", "template_id": self.template.name, "command": ECHO}
        message = request("POST", "/sandboxes/create", self.key, body)
        started = time.perf_counter()
        answer = json.loads(await wire.ask(message))
        taken = time.perf_counter() - started
        if answer["command"]["stdout"] != "hi\n":
            raise RuntimeError(f"the command said something else: {answer!r}")
        return taken, str(answer["sandbox_id"])

    async def delete(self, wire: Wire, sandbox_ids: Sequence[str]) -> None:
        for sandbox_id in sandbox_ids:
            await wire.ask(request("DELETE", f"/sandboxes/{sandbox_id}", self.key))

    def record(self, sandbox_id: str) -> dict[str, Any]:
        """The provider's record of a sandbox: its first process, and its name in the pool."""
        found: dict[str, Any] = json.loads((self.home / "local/sandboxes" / sandbox_id / "record.json").read_bytes())
        return found

    async def filled(self, wire: Wire, count: int) -> set[str]:
        """Wait until the pool holds ``count`` machines of our template and is idle; returns their names."""
        deadline = time.monotonic() + _FILL_SECONDS
        while True:
            pool = json.loads(await wire.ask(request("GET", "/health")))["pool"]
            ready = self._warm()
            if len(ready) >= count and pool["ready"] >= pool["wanted"]:
                return ready
            if time.monotonic() > deadline:
                raise RuntimeError(f"the pool was not filled: {len(ready)} of {count}, and {pool}")
            await asyncio.sleep(0.05)

    def _warm(self) -> set[str]:
        names = set()
        for path in (self.home / "local/warm").iterdir():
            try:
                record = json.loads((path / "record.json").read_bytes())
            except FileNotFoundError:
                continue  # claimed meanwhile
            if record["template_id"] == self.template.name:
                names.add(path.name)
        return names


@asynccontextmanager
async def local_server(home: Path, template: Template, *, pool: int = 0, **more: str) -> AsyncIterator[LocalServer]:
    """``paddock up`` in its own process. ``pool``: maximum machines of our template in the pool. ``more``: settings."""
    home.mkdir(mode=0o700)
    if template.folder is not None:
        (home / "templates").symlink_to(template.folder.parent)
    try:
        async with started(home, template, pool=pool, **more) as server:
            yield server
    finally:
        await clear(home / "local")


@asynccontextmanager
async def started(home: Path, template: Template, *, pool: int = 0, **more: str) -> AsyncIterator[LocalServer]:
    """The same in an existing home with its sandboxes, which keep running afterwards."""
    settings = {
        "PADDOCK_HOME": str(home),
        "HOST": "127.0.0.1",
        "PORT": "0",
        "SANDBOX_PROVIDER": "local",
        "PADDOCK_QUOTA_LIVE": "0",
        "PADDOCK_QUOTA_RPS": "0",
        "PADDOCK_LOG_LEVEL": "warning",
        "PADDOCK_POOL_SIZE": str(_pool_size(template, pool)),
        "PADDOCK_POOL_MAX": str(pool + _SPARE + 1 if pool else 0),
        **more,
    }
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PADDOCK, "--json", "up"],
            env={**_plain(), **settings},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        port = await asyncio.wait_for(asyncio.to_thread(_port, process, home / "log"), _START_SECONDS)
        yield LocalServer(home, template, port, process.pid, (home / "key").read_text().strip())
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def _pool_size(template: Template, pool: int) -> int:
    """The setting applies to the default template. The pool of another one grows by demand, up to the maximum."""
    if not pool:
        return 0
    return pool + _SPARE if template.folder is None else 1


def _plain() -> dict[str, str]:
    """Our environment without what would configure the server. It keeps what Python compiles, as every installation
    does: to compile Paddock takes longer than to start it."""
    others = ("PADDOCK_", "DATABASE_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the server reports once it listens."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        try:
            document = json.loads(b"".join(lines))
        except ValueError:
            continue
        port = int(document["url"].rstrip("/").rpartition(":")[2])
        if _answers(port, process):
            return port
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers; False if it has ended instead."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except ConnectionRefusedError:
            time.sleep(0.05)
    return False


async def clear(root: Path) -> None:
    """Delete all sandboxes of a stopped server in this directory: they keep running by design."""
    if not root.is_dir():
        return
    provider = LocalProvider(root)
    await provider.start()
    try:
        for found in await provider.list():
            await provider.delete(found.sandbox_id)
        for shape, count in dict(await provider.warmed()).items():
            await provider.cool(shape, count)
    finally:
        await provider.close()
