"""Ports of sandboxes that the server answers itself: which app a request is for.

A request for E2B's envd goes to the app that plays it, acting through Machine; so does a signed ``/files`` URL, which
names no sandbox and is found by its signature. A request for MCP goes to the app that serves the sandbox's tools. What
names no port of a sandbox is for the API. Requests for other ports are answered by the gateway, in front of all apps,
and never come here.
"""

from __future__ import annotations

from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock import errors
from paddock.gateway.address import ENVD_PORT, ID_HEADER, Destination, find_destination

DESTINATION = "destination"
"""Where an app finds it in the scope's state. Absent for signed URLs."""


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
    """A browser asks whether it may send the headers that say where to, without sending them."""
    asked = headers.get("access-control-request-headers", "").lower()
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and ID_HEADER in asked


def _arrived(scope: Scope, destination: Destination) -> Scope:
    """The scope as the app behind the port sees it: the path form's prefix is not part of its paths."""
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
