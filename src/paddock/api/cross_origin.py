"""CORS: pages of the configured origins may call the API with an API key.

Off by default. ``Access-Control-Allow-Credentials`` is never sent, so browsers never authenticate by themselves: a key
is required as everywhere. Sandbox ports have their own rules, outside of this module.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

CROSS_ORIGIN = "paddock.cross_origin"
"""Scope key of the CORS headers for the response."""
ANY = "*"
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_MAX_AGE_S = 600
_FIELD_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_MAX_FIELD_NAMES = 4000

RawHeaders = list[tuple[bytes, bytes]]


class CrossOrigin:
    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._any = ANY in origins
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = self._allow(headers.get("origin"))
        scope.setdefault("state", {})[CROSS_ORIGIN] = allowed
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers and len(allowed) > 1:
            await self._answer_preflight(headers, send)
            return
        await self._app(scope, receive, send)

    def _allow(self, origin: str | None) -> RawHeaders:
        # Caches must not reuse a response for another origin.
        found: RawHeaders = [] if self._any else [(b"vary", b"Origin")]
        if origin is None or not (self._any or origin in self._origins):
            return found
        name = ANY if self._any else origin
        return [*found, (b"access-control-allow-origin", name.encode()), (b"access-control-expose-headers", b"*")]

    async def _answer_preflight(self, headers: Headers, send: Send) -> None:
        """Allows any header; the API key decides about the request itself."""
        asked = headers.get("access-control-request-headers", "")
        answer: RawHeaders = [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", str(_MAX_AGE_S).encode()),
        ]
        if len(asked) <= _MAX_FIELD_NAMES and _FIELD_NAMES.fullmatch(asked):
            answer.append((b"access-control-allow-headers", asked.encode()))
        await send({"type": "http.response.start", "status": 204, "headers": answer})
        await send({"type": "http.response.body", "body": b""})
