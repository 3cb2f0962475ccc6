"""Ports of sandboxes that the server itself serves: selects the app for a request.

A request for E2B's envd port goes to the app that implements envd on Machine; so does a signed ``/files`` URL, which
contains no sandbox id and is found by its signature. A request for the MCP port goes to the app that serves the
sandbox's tools. Requests without a sandbox port are for the API. Requests for other ports are handled by the gateway
and never reach an app.
"""

from __future__ import annotations

from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock import errors
from paddock.gateway.address import ENVD_PORT, ID_HEADER, Destination, find_destination

DESTINATION = "destination"
"""State key of the requested sandbox port. Absent for signed URLs."""


class BuiltinPorts:
    def __init__(self, app: ASGIApp, *, envd: ASGIApp, mcp: ASGIApp, mcp_port: int) -> None:
        self._app = app
        self._envd = envd
        self._mcp = mcp
        self._mcp_port = mcp_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        destination = find_destination(headers.get("host", ""), headers.get, scope["path"])
        if destination is None:
            signed = scope["path"] == "/files" and "signature" in QueryParams(scope["query_string"])
            await (self._envd if signed or _preflight(scope, headers) else self._app)(scope, receive, send)
        elif destination.port == ENVD_PORT:
            await self._envd(_arrived(scope, destination), receive, send)
        elif destination.port == self._mcp_port:
            await self._mcp(_arrived(scope, destination), receive, send)
        else:
            raise errors.Unsupported(
                "Ports of sandboxes are served by Paddock's own server (`paddock up`), not by this app alone."
            )


def _preflight(scope: Scope, headers: Headers) -> bool:
    """Answers CORS preflights, which do not contain the headers that select the sandbox."""
    asked = headers.get("access-control-request-headers", "").lower()
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and ID_HEADER in asked


def _arrived(scope: Scope, destination: Destination) -> Scope:
    """The scope for the port's app: without the prefix of the path form."""
    state = {**scope.get("state", {}), DESTINATION: destination}
    if not destination.prefix:
        return {**scope, "state": state}
    prefix = destination.prefix
    return {
        **scope,
        "state": state,
        "root_path": scope.get("root_path", "") + prefix,
        "path": scope["path"].removeprefix(prefix) or "/",
        "raw_path": scope.get("raw_path", b"").removeprefix(prefix.encode()) or b"/",
    }
