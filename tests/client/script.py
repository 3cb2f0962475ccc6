"""A server that the test writes itself: it answers from a script. No socket, no waiting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from paddock.client import SandboxClient, SyncSandboxClient

BOX = {
    "sandbox_id": "alice_1f2e3d4c",
    "key": "iabcdefghijklmnopqrst",
    "user_id": "alice",
    "owner_id": "admin",
    "status": "running",
    "reason": None,
    "provider": "local",
    "template_id": "base",
    "timeout": 3600,
    "on_timeout": "pause",
    "max_lifetime": None,
    "resources": {"cpu": 1.0, "memory_mb": 512, "disk_mb": 1024, "pids": 512},
    "egress": "proxy",
    "isolation": None,
    "mounts": [],
    "public_ports": False,
    "auto_resume": True,
    "timeout_from": "activity",
    "metadata": {"chat": "42"},
    "created_at": "2030-01-31T12:00:00.000Z",
    "started_at": "2030-01-31T12:00:00.000Z",
    "last_activity_at": "2030-01-31T12:00:00.000Z",
    "expires_at": "2030-01-31T13:00:00.000Z",
    "expires_action": "pause",
    "mcp_url": "http://localhost:8080/p/iabc/6060/mcp/",
    "mcp_token": "0123abcd",
    "vscode_url": "http://9000-iabc.localhost:8080/",
    "success": True,
    "message": "",
}
RESULT = {
    "success": True,
    "message": "",
    "sandbox_id": "alice_1f2e3d4c",
    "process_id": "p_0123456789abcdef",
    "status": "completed",
    "exit_code": 0,
    "output": "hi\n",
    "stdout": "hi\n",
    "stderr": "",
    "stdout_start": 0,
    "stderr_start": 0,
    "stdout_skipped": 0,
    "stderr_skipped": 0,
    "stdout_offset": 3,
    "stderr_offset": 0,
    "truncated": False,
    "duration": 0.1,
}
ENDED = {
    "process_id": "p_0123456789abcdef",
    "status": "completed",
    "exit_code": 0,
    "pid": 7,
    "label": "echo hi",
    "started_at": "2030-01-31T12:00:00.000Z",
    "ended_at": "2030-01-31T12:00:01.000Z",
    "stdout_size": 3,
    "stderr_size": 0,
    "terminal": False,
}

Step = Callable[[httpx.Request], httpx.Response]


def answer(document: Any, status: int = 200, **headers: str) -> Step:
    return lambda request: httpx.Response(status, json=document, headers=headers)


def failure(code: str, status: int, message: str = "no", **headers: str) -> Step:
    error = {"code": code, "message": message, "status": status, "details": {"a": 1}, "request_id": "r_1"}
    return answer({"success": False, "error": error}, status, **headers)


def broken(kind: type[httpx.TransportError]) -> Step:
    def step(request: httpx.Request) -> httpx.Response:
        raise kind("broken on purpose", request=request)

    return step


def refuse(request: httpx.Request) -> httpx.Response:
    """No connection: nothing of the request has been touched."""
    raise httpx.ConnectError("refused on purpose", request=request)


@dataclass
class Script(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers in this order, and remembers what it was asked. The last answer is given for ever.

    Unlike ``httpx.MockTransport`` it does not read the body of a request that it refuses to connect for.
    """

    steps: list[Step]
    requests: list[httpx.Request] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        step = self._next(request)
        if step is not refuse:
            request.read()
        return step(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        step = self._next(request)
        if step is not refuse:
            await request.aread()
        return step(request)

    def _next(self, request: httpx.Request) -> Step:
        self.requests.append(request)
        return self.steps[min(len(self.requests), len(self.steps)) - 1]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]

    def header(self, name: str) -> list[str | None]:
        return [request.headers.get(name) for request in self.requests]

    def client(self, **options: Any) -> SyncSandboxClient:
        options = {"api_key": "key", "sleep": self.pauses.append, **options}
        return SyncSandboxClient("http://paddock.test", transport=self, **options)

    def async_client(self, **options: Any) -> SandboxClient:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        options = {"api_key": "key", "sleep": sleep, **options}
        return SandboxClient("http://paddock.test", transport=self, **options)


def script(*steps: Step) -> Script:
    return Script(list(steps))
