"""A sandbox as an E2B client sees it: headers, envelopes and signatures, written from the protocol's document alone."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

ENVD = "49983"
HEAD = struct.Struct(">BI")


def envelope(document: Any, flags: int = 0) -> bytes:
    message = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HEAD.pack(flags, len(message)) + message


def envelopes(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    while data:
        flags, size = HEAD.unpack_from(data)
        yield flags, json.loads(data[HEAD.size : HEAD.size + size])
        data = data[HEAD.size + size :]


class Events:
    """A server stream that is open."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._raw = answer.aiter_raw()
        self._data = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, dict[str, Any]]:
        while len(self._data) < HEAD.size or len(self._data) < HEAD.size + HEAD.unpack_from(self._data)[1]:
            self._data += await anext(self._raw)
        flags, size = HEAD.unpack_from(self._data)
        message = self._data[HEAD.size : HEAD.size + size]
        self._data = self._data[HEAD.size + size :]
        return flags, json.loads(message)

    async def event(self) -> dict[str, Any]:
        """The next event of a process."""
        flags, document = await anext(self)
        assert flags == 0, document
        found: dict[str, Any] = document["event"]
        return found

    async def pid(self) -> int:
        return int((await self.event())["start"]["pid"])

    async def until(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            data = (await self.event()).get("data", {})
            seen += b"".join(base64.b64decode(piece) for piece in data.values())
        return seen

    async def rest(self) -> list[tuple[int, dict[str, Any]]]:
        return [item async for item in self]


@dataclass(frozen=True)
class Ran:
    pid: int
    out: dict[str, bytes]
    end: dict[str, Any]
    events: list[dict[str, Any]]
    last: dict[str, Any]

    @property
    def stdout(self) -> str:
        return self.out["stdout"].decode()

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.last["error"]
        return found


@dataclass
class Box:
    client: httpx.AsyncClient
    """Without any headers of its own."""
    sandbox_id: str
    key: str
    token: str
    user: str | None = None
    extra: dict[str, str] = field(default_factory=dict)

    def headers(self, **more: str) -> dict[str, str]:
        basic = {}
        if self.user is not None:
            basic = {"Authorization": "Basic " + base64.b64encode(f"{self.user}:".encode()).decode()}
        routing = {"E2b-Sandbox-Id": self.key, "E2b-Sandbox-Port": ENVD}
        return {**routing, "X-Access-Token": self.token, **basic, **self.extra, **more}

    def as_user(self, name: str) -> Box:
        return Box(self.client, self.sandbox_id, self.key, self.token, name, self.extra)

    # Calls

    async def post(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        return await self.client.post(path, content=content, headers=self.headers(**headers))

    async def call(self, method: str, document: Any = None, **headers: str) -> httpx.Response:
        content = json.dumps(document or {}).encode()
        kind = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        return await self.post("/" + method, content, **{**kind, **headers})

    async def ok(self, method: str, document: Any = None, **headers: str) -> dict[str, Any]:
        answer = await self.call(method, document, **headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def fails(self, method: str, document: Any, status: int, code: str) -> str:
        answer = await self.call(method, document)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        return str(answer.json()["message"])

    @asynccontextmanager
    async def stream(self, method: str, document: Any, **headers: str) -> AsyncIterator[Events]:
        kind = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        content = document if isinstance(document, bytes) else envelope(document)
        async with self.client.stream(
            "POST", "/" + method, content=content, headers=self.headers(**{**kind, **headers})
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"] == "application/connect+json"
            assert answer.headers["x-accel-buffering"] == "no"
            yield Events(answer)

    # Processes

    def start(self, script: str, **more: Any) -> dict[str, Any]:
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", script], **more.pop("process", {})}
        return {"process": process, "stdin": False, **more}

    def running(self, script: str, headers: dict[str, str] | None = None, **more: Any) -> Any:
        return self.stream("process.Process/Start", self.start(script, **more), **(headers or {}))

    async def run(self, script: str, headers: dict[str, str] | None = None, **more: Any) -> Ran:
        async with self.running(script, headers, **more) as stream:
            return collected(await stream.rest())

    async def failed_start(self, document: dict[str, Any]) -> dict[str, Any]:
        async with self.stream("process.Process/Start", document) as stream:
            [(flags, last)] = await stream.rest()
        assert flags == 2
        error: dict[str, Any] = last["error"]
        return error

    # Files

    async def put(self, path: str, data: bytes, params: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        return await self.client.post(
            "/files",
            params={"path": path, **(params or {})},
            content=data,
            headers=self.headers(**{"Content-Type": "application/octet-stream", **headers}),
        )

    async def get(self, path: str, params: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        return await self.client.get("/files", params={"path": path, **(params or {})}, headers=self.headers(**headers))

    def signature(self, path: str, operation: str, user: str = "", expiration: int | None = None) -> dict[str, str]:
        parts = [path, operation, user, self.token, *([] if expiration is None else [str(expiration)])]
        digest = base64.b64encode(hashlib.sha256(":".join(parts).encode()).digest()).decode().rstrip("=")
        named = {"username": user} if user else {}
        until = {} if expiration is None else {"signature_expiration": str(expiration)}
        return {"path": path, "signature": f"v1_{digest}", **named, **until}


def collected(items: list[tuple[int, dict[str, Any]]]) -> Ran:
    *messages, (flags, last) = items
    assert flags == 2 and all(flags == 0 for flags, _ in messages)
    events = [document["event"] for _, document in messages]
    out = {"stdout": b"", "stderr": b"", "pty": b""}
    for event in events:
        for name, piece in event.get("data", {}).items():
            decoded = base64.b64decode(piece)
            assert len(decoded) <= 32 * 1024
            out[name] += decoded
    pid = events[0].get("start", {}).get("pid", 0) if events else 0
    end = events[-1].get("end", {}) if events else {}
    return Ran(pid, out, end, events, last)
