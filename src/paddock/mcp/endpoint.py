"""The endpoint: MCP over streamable HTTP, without sessions, for both generations of the protocol.

The tool host comes with each request, so one endpoint serves all sandboxes, any replica can answer any request, and a
client that was disconnected loses nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from paddock import errors, json_limits
from paddock.mcp.tool_host import ToolHost

TOOL_HOST = "mcp_tool_host"
"""Key of the tool host in the scope's state."""

MAX_BODY = 8 << 20
"""Maximum bytes of one request. It is parsed as a whole on the event loop; larger files are uploaded by other means."""

MISSING = (
    "There is no MCP here: the package `mcp`, a part of every installation, is missing from the server's environment."
)


_importing = threading.Lock()
"""The SDK's modules import each other: a thread that begins while another is at it would find some half made."""


def _import(module: str) -> Any:
    with _importing:
        return importlib.import_module(module)


async def sdk(module: str) -> Any:
    """Import a module of Paddock that needs the SDK, in a thread, because it would block the event loop for a
    second."""
    try:
        return await asyncio.to_thread(_import, module)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ("mcp", "mcp_types", "httpx2"):
            raise
        raise errors.Unsupported(MISSING) from problem


class Endpoint:
    def __init__(self, max_body: int) -> None:
        self._max_body = min(max_body, MAX_BODY)
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._manager: Any = None

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request. Raises if parsing it would block the event loop noticeably."""
        body = bytearray()
        try:
            async for chunk in Request(scope, receive).stream():
                body += chunk
                if len(body) > self._max_body:
                    raise errors.PayloadTooLarge(f"A request may have at most {self._max_body} bytes.")
        except ClientDisconnect:
            raise errors.MalformedRequest("The connection ended before the body did.") from None
        data = bytes(body)
        await json_limits.check_large(data)
        return data

    async def serve(self, scope: Scope, receive: Receive, send: Send, host: ToolHost) -> None:
        if self._manager is None:
            async with self._starting:
                if self._manager is None:
                    self._manager = await self._start()
        scope = {**scope, "state": {**scope.get("state", {}), TOOL_HOST: host}}
        await self._manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """Running calls are cancelled."""
        self._stop.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self._running = self._manager = None

    async def _start(self) -> Any:
        if self._stop.is_set():
            raise errors.Unavailable("The server is stopping.")
        server = await sdk("paddock.mcp.server")
        manager = server.session_manager(self._max_body)
        ready = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._hold(manager, ready), name="mcp")
        await ready
        return manager

    async def _hold(self, manager: Any, ready: asyncio.Future[None]) -> None:
        """Owns the session manager's context: it must be entered and exited in the same task."""
        async with manager.run():
            ready.set_result(None)
            await self._stop.wait()
