"""The mixed load of the soak test: clients that do everything that agents do, without pauses."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx

from benchmarks.local_server import LocalServer
from benchmarks.mcp import _handshake_era as mcp_call
from benchmarks.wire import Wire, request

_SMALL = {"cpu": 0.5, "memory_mb": 96, "disk_mb": 64}
_MAX_ALIVE = 24
_WEB_PORT = 8000
_WEB = "/usr/bin/python3 -m http.server 8000 --bind 127.0.0.1 --directory /workspace"
_UNREAD_S = 3.0
_GONE = (404, 409, 503)
"""Statuses after another client or a deadline has paused or deleted the sandbox."""


class Load:
    def __init__(self, server: LocalServer, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        """Unexpected answers."""
        self._boxes: list[str] = []
        self._kept = ""
        """A sandbox that is kept throughout, with a web server in it."""

    @asynccontextmanager
    async def running(self, clients: int) -> AsyncIterator[None]:
        url = f"http://127.0.0.1:{self.server.port}"
        async with httpx.AsyncClient(base_url=url, headers={"X-API-Key": self.server.key}, timeout=60) as client:
            await self._prepare(client)
            tasks = [asyncio.create_task(self._client(client)) for _ in range(clients)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, client: httpx.AsyncClient) -> None:
        body = {"user_id": "soak", "timeout": 3600}
        self._kept = (await client.post("/sandboxes/create", json=body)).json()["sandbox_id"]
        service = {"port": _WEB_PORT, "command": _WEB}
        (await client.put(f"/sandboxes/{self._kept}/services/web", json=service)).raise_for_status()

    async def _client(self, client: httpx.AsyncClient) -> None:
        actions: dict[Callable[[httpx.AsyncClient], Awaitable[None]], int] = {
            self.create: 6,
            self.delete: 3,
            self.pause: 3,
            self.resume: 3,
            self.timeout: 2,
            self.command: 20,
            self.background: 3,
            self.stream: 4,
            self.unread: 2,
            self.file: 8,
            self.preview: 8,
            self.mcp: 8,
            self.look: 6,
        }
        while True:
            action = self.rng.choices(list(actions), list(actions.values()))[0]
            try:
                await action(client)
                self.counts[action.__name__] += 1
            except (httpx.HTTPError, RuntimeError, OSError) as error:
                self.wrong.append(f"{action.__name__}: {error!r}"[:300])
            await asyncio.sleep(0)

    async def create(self, client: httpx.AsyncClient) -> None:
        if len(self._boxes) >= _MAX_ALIVE:
            return await self.delete(client)
        body = {
            "user_id": "soak",
            "timeout": self.rng.choice([2, 4, 8, 300]),
            "on_timeout": self.rng.choice(["pause", "delete"]),
            "resources": _SMALL,
        }
        answer = await client.post("/sandboxes/create", json=body)
        if self._fine("create", answer):
            self._boxes.append(answer.json()["sandbox_id"])
        return None

    async def delete(self, client: httpx.AsyncClient) -> None:
        if self._boxes:
            box = self._boxes.pop(self.rng.randrange(len(self._boxes)))
            self._fine("delete", await client.delete(f"/sandboxes/{box}"))

    async def pause(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "pause")

    async def resume(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "resume")

    async def timeout(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "timeout", timeout=self.rng.choice([2, 5, 300]))

    async def command(self, client: httpx.AsyncClient) -> None:
        lines = self.rng.choice([1, 1, 1, 100, 50_000])
        await self._on_some(client, "run-command", command=f"seq 1 {lines}")

    async def background(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "run-command", command="sleep 1; seq 1 300000", background=True, hard_timeout=5)

    async def stream(self, client: httpx.AsyncClient) -> None:
        """Read a stream of 3 MB to its end."""
        box = self._some()
        body = {"sandbox_id": box, "command": "seq 1 500000", "stream": True}
        async with client.stream("POST", "/sandboxes/run-command", json=body) as answer:
            if answer.status_code == 200:
                async for _ in answer.aiter_bytes():
                    pass
            else:
                await answer.aread()
                self._fine("stream", answer)

    async def unread(self, _: httpx.AsyncClient) -> None:
        """Open a stream and do not read it: its memory must be released."""
        body = {"sandbox_id": self._some(), "command": "yes", "stream": True, "hard_timeout": 2 * _UNREAD_S}
        message = request("POST", "/sandboxes/run-command", self.server.key, body)
        loop = asyncio.get_running_loop()
        with socket.socket() as silent:
            silent.setblocking(False)
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(silent, ("127.0.0.1", self.server.port))
            await loop.sock_sendall(silent, message)
            await asyncio.sleep(_UNREAD_S)

    async def file(self, client: httpx.AsyncClient) -> None:
        path = f"/sandboxes/{self._some()}/files"
        where = {"path": f"/workspace/file{self.rng.randrange(5)}"}
        content = self.rng.randbytes(1 << self.rng.randint(4, 20))
        if self._fine("file", await client.put(path, params=where, content=content)):
            self._fine("file", await client.get(path, params=where))

    async def preview(self, client: httpx.AsyncClient) -> None:
        """Through the gateway."""
        self._fine("preview", await client.get(f"/p/{self._kept}/{_WEB_PORT}/"))

    async def mcp(self, _: httpx.AsyncClient) -> None:
        wire = await Wire.open(self.server.port)
        try:
            await wire.ask(mcp_call(self.server, self._kept))
        finally:
            wire.close()

    async def look(self, client: httpx.AsyncClient) -> None:
        box = self._some()
        for path in ("/sandboxes", "/usage", f"/sandboxes/{box}/status", f"/sandboxes/{box}/events?limit=50"):
            self._fine("look", await client.get(path))

    async def _on_some(self, client: httpx.AsyncClient, action: str, **fields: object) -> None:
        body = {"sandbox_id": self._some(), **fields}
        self._fine(action, await client.post(f"/sandboxes/{action}", json=body))

    def _some(self) -> str:
        return self.rng.choice(self._boxes) if self._boxes else self._kept

    def _fine(self, action: str, answer: httpx.Response) -> bool:
        if answer.is_success:
            return True
        if answer.status_code in _GONE:
            self.refused[f"{action} {answer.status_code}"] += 1
        else:
            self.wrong.append(f"{action}: {answer.status_code} {answer.text[:200]}")
        if answer.status_code == 404:
            box = str(answer.request.url)
            self._boxes = [each for each in self._boxes if each not in box and each not in str(answer.request.content)]
        return False


async def write_without_pause(server: LocalServer, seconds: float, writers: int) -> int:
    """Clients that write to the database with every request, and two that read; returns the number of requests."""
    until = time.perf_counter() + seconds
    wires = await server.wires(writers + 2)
    boxes = [await server.create(wires[0], resources=_SMALL, timeout=3600) for _ in range(writers)]
    done = 0

    async def work(wire: Wire, message: Callable[[], bytes]) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await wire.ask(message())
            done += 1

    def retime(box: str) -> Callable[[], bytes]:
        return lambda: request(
            "POST", "/sandboxes/timeout", server.key, {"sandbox_id": box, "timeout": random.randint(1000, 3600)}
        )

    reads = [work(wire, lambda: request("GET", "/sandboxes", server.key)) for wire in wires[writers:]]
    await asyncio.gather(*(work(wire, retime(box)) for wire, box in zip(wires, boxes, strict=False)), *reads)
    with contextlib.suppress(RuntimeError):
        await server.delete(wires[0], boxes)
    for wire in wires:
        wire.close()
    return done
