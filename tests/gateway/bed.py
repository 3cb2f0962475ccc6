"""A whole Paddock on a real port, a sandbox in it, and clients that say exactly what a test wants said."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.api.server import Server, make_server
from paddock.clock import SystemClock
from paddock.providers.registry import build_providers
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.client.server import free_port
from tests.support.waiting import PATIENCE_S

INSIDE = Path(__file__).with_name("inside.py").read_text()
PORT = 3000


@dataclass(frozen=True, slots=True)
class Bed:
    settings: Settings
    key: str
    context: ServerContext
    server: Server

    @property
    def port(self) -> int:
        return self.settings.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, key: str | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"X-API-Key": key or self.key}, timeout=2 * PATIENCE_S)

    def new_key(self, name: str) -> str:
        """Of a user who is nobody in particular."""
        with self.api() as api:
            return str(api.post("/keys", json={"name": name}).raise_for_status().json()["key"])

    def create(self, **fields: Any) -> Box:
        with self.api() as api:
            made = api.post("/sandboxes/create", json={"user_id": "alice", **fields}).raise_for_status().json()
        return Box(self, made["sandbox_id"], made["key"])


@dataclass(frozen=True, slots=True)
class Box:
    bed: Bed
    sandbox_id: str
    key: str

    def host(self, port: int = PORT) -> str:
        return f"{port}-{self.key}.localhost:{self.bed.port}"

    def run(self, command: str, **fields: Any) -> str:
        body = {"sandbox_id": self.sandbox_id, "command": command, **fields}
        with self.bed.api() as api:
            return str(api.post("/sandboxes/run-command", json=body).raise_for_status().json()["stdout"])

    def serve(self, port: int = PORT) -> Box:
        """Start the server inside, and wait until it listens."""
        with self.bed.api() as api:
            api.post(
                "/sandboxes/write-file",
                json={"sandbox_id": self.sandbox_id, "path": "/workspace/inside.py", "content": INSIDE},
            ).raise_for_status()
        self.run(f"python3 /workspace/inside.py {port}", background=True)
        self.run(
            "python3 - <<'END'\nimport socket, time\nwhile True:\n"
            f"    try: socket.create_connection(('127.0.0.1', {port})).close(); break\n"
            "    except OSError: time.sleep(0.02)\nEND"
        )
        return self

    def visitor(self, port: int = PORT, *, key: str | None = "own", **headers: str) -> httpx.Client:
        """With the owner's key, or with another, or (None) with nothing but these headers."""
        given = {"Host": self.host(port), **headers}
        if key is not None:
            given["X-API-Key"] = self.bed.key if key == "own" else key
        return httpx.Client(base_url=self.bed.url, headers=given, timeout=PATIENCE_S)

    async def dial(self) -> Peer:
        return Peer(*await asyncio.open_connection("127.0.0.1", self.bed.port, limit=1 << 20), self)

    def delete(self) -> None:
        with self.bed.api() as api:
            api.delete(f"/sandboxes/{self.sandbox_id}").raise_for_status()


class Peer:
    """A client that writes its own bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, box: Box) -> None:
        self.reader = reader
        self.writer = writer
        self._box = box

    def head(self, line: str, *headers: str, port: int = PORT, key: bool = True) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: {self._box.host(port)}", *headers]
        if key:
            lines.append(f"X-API-Key: {self._box.bed.key}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, line: str, *headers: str, body: bytes = b"", port: int = PORT) -> Reply:
        await self.send(self.head(line, *headers, port=port) + body)
        return await self.reply(head_only=line.startswith("HEAD"))

    async def reply(self, *, head_only: bool = False) -> Reply:
        async with asyncio.timeout(PATIENCE_S):
            raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(raw.split(" ", 2)[1])
            headers = dict(line.lower().split(": ", 1) for line in raw.split("\r\n")[1:] if line)
            if head_only or status in (101, 204, 304) or status < 200:
                return Reply(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                return Reply(status, headers, await self._chunks())
            if "content-length" in headers:
                return Reply(status, headers, await self.reader.readexactly(int(headers["content-length"])))
            return Reply(status, headers, await self.reader.read())

    async def at_end(self) -> bool:
        """Whether the other side has nothing more to say, and has said so."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return not await self.reader.read(1)
        except ConnectionError:
            return True

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self.reader.readline()).split(b";")[0], 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        while (await self.reader.readline()).strip():
            pass
        return body

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def running(home: Path, provider: str, **options: Any) -> Iterator[Bed]:
    settings = Settings(
        PADDOCK_HOME=home, PORT=free_port(), SANDBOX_PROVIDER=provider, PADDOCK_POOL_SIZE=0, _env_file=None, **options
    )
    key = asyncio.run(first_key(settings)).key
    app = create_app(settings)
    server = make_server(app, settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.01)
        yield Bed(settings, key, app.state.context, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"
        asyncio.run(_delete_machines(settings))


async def _delete_machines(settings: Settings) -> None:
    """What a test left running would run on for ever: sandboxes outlive their server on purpose."""
    for provider in build_providers(settings, SystemClock()).values():
        await provider.start()
        for machine in await provider.list():
            await provider.delete(machine.sandbox_id)
        await provider.close()


def resident_bytes() -> int:
    """Of this process, in which the server runs."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
