"""The app on port 6060: ``/mcp`` and ``/mcp/``, and ``/health``. Every request needs a token.

Authentication is up to the caller, by a callback: there is one for sandboxes' ports, and one for the machine of a
stand-alone server.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from paddock import errors
from paddock.mcp.endpoint import Endpoint
from paddock.mcp.tool_host import ToolHost
from paddock.tools.context import ignore_progress

PORT = 6060
PATH = "/mcp/"

_METHODS = "POST, DELETE, OPTIONS"
_PREFLIGHT = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": _METHODS,
    "Access-Control-Max-Age": "7200",
}


@dataclass(frozen=True, slots=True)
class AdmittedClient:
    host: ToolHost
    health: dict[str, Any]
    """Additional fields of ``/health``."""


class McpApp:
    """``admit`` returns the tool host for a request, or raises if it has no valid token."""

    def __init__(self, endpoint: Endpoint, admit: Callable[[Scope, Headers], Awaitable[AdmittedClient]]) -> None:
        self._endpoint = endpoint
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "There are no WebSockets on this port."})
            return
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS":
            asked = headers.get("access-control-request-headers", "*")[:4000]
            preflight = Response(status_code=204, headers={**_PREFLIGHT, "Access-Control-Allow-Headers": asked})
            await preflight(scope, receive, send)
            return
        admitted = await self._admit(scope, headers)
        if scope["path"] in ("/mcp", PATH):
            await self._serve(scope, receive, _readable(send), admitted.host)
        elif scope["path"] == "/health" and scope["method"] in ("GET", "HEAD"):
            await JSONResponse({"status": "ok", **admitted.health})(scope, receive, send)
        else:
            raise errors.NotFound(f"There is {PATH} on this port, and /health.")

    async def _serve(self, scope: Scope, receive: Receive, send: Send, host: ToolHost) -> None:
        """Without sessions there is no stream to open and nothing to terminate; GET and DELETE get the protocol's
        responses."""
        match scope["method"]:
            case "POST":
                given = await self._endpoint.read(scope, receive)
                if (plain := read_plain_call(given)) is not None:
                    await (await answer_plain_call(plain, host))(scope, receive, send)
                    return
                await self._endpoint.serve(scope, _replayed(given, receive), send, host)
            case "DELETE":
                await Response(status_code=200)(scope, receive, send)
            case _:
                error = {"code": -32000, "message": "This server keeps no sessions: POST each request."}
                body = {"jsonrpc": "2.0", "id": None, "error": error}
                await JSONResponse(body, 405, {"Allow": _METHODS})(scope, receive, send)


def bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip() or None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Replays a body that was read already to the next reader."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _readable(send: Send) -> Send:
    """Sets the CORS header for any origin: access is decided by the token."""

    async def marked(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"access-control-allow-origin", b"*")]}
        await send(message)

    return marked


_MARKER = b'"tool"'


@dataclass(frozen=True, slots=True)
class PlainCall:
    tool: str
    arguments: Mapping[str, Any]


def read_plain_call(body: bytes) -> PlainCall | None:
    """None for anything else: MCP reports its own errors."""
    if _MARKER not in body:  # MCP's own messages do not contain this name, and so are not parsed twice
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "jsonrpc" in document or "tool" not in document:
        return None
    tool, arguments = document["tool"], document.get("args", document.get("arguments"))
    if not isinstance(tool, str) or not isinstance(arguments, dict | None):
        raise errors.Invalid('A call is {"tool": "<name>", "args": {…}}.')
    return PlainCall(tool, arguments or {})


async def answer_plain_call(call: PlainCall, host: ToolHost) -> Response:
    outcome = await host.call(call.tool, call.arguments, ignore_progress)
    pictures = [
        {"media_type": picture.media_type, "data": base64.b64encode(picture.data).decode()}
        for picture in outcome.pictures
    ]
    return JSONResponse(
        {
            "success": not outcome.failed,
            "tool": call.tool,
            "result": outcome.text,
            "data": None if outcome.data is None else dict(outcome.data),
            "pictures": pictures,
        }
    )
