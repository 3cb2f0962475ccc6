"""Counts request and response bodies against the server's byte budget, and sends responses only as fast as they are
read."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from paddock.accounts.byte_budget import SMALL, STREAM, ByteBudget, Reservation

HOLDING: Final = "holding"
"""State key of the request's :class:`~paddock.accounts.byte_budget.Reservation`."""
_PIECE = 64 << 10
"""A complete response is sent in chunks of this size, each after the previous one has left."""
_BODY_COPIES = 3
"""Copies of a JSON body in memory: as received, as text, and parsed."""
_EMPTY = (204, 304)
_STREAMED = re.compile(r".*/files(?:/(?:bulk-upload|upload|upload-v2))?|.*/process\.Process/StreamInput")
"""Paths whose bodies are streamed."""


def holding_of(scope: Scope, budget: ByteBudget) -> Reservation:
    """The request's reservation; a new one in apps that are called without the middleware."""
    holding: Reservation = scope.setdefault("state", {}).setdefault(HOLDING, Reservation(budget))
    return holding


class CountedBody:
    """``receive`` that reserves memory for each chunk before the next one is read."""

    def __init__(self, receive: Receive, holding: Reservation) -> None:
        self._receive = receive
        self._holding = holding
        self._size = 0

    @classmethod
    def of(cls, scope: Scope, receive: Receive, holding: Reservation) -> Receive:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD") or _STREAMED.fullmatch(scope["path"]):
            return receive
        return cls(receive, holding)

    async def __call__(self) -> Message:
        message = await self._receive()
        if body := message.get("body"):
            self._size += len(body)
            self._holding.reserve(_BODY_COPIES * self._size)
        return message


class CountedAnswer:
    """``send`` that reserves memory for a complete response before its status is sent, and sends it in chunks."""

    def __init__(self, send: Send, holding: Reservation) -> None:
        self._send = send
        self._holding = holding
        self._start: Message | None = None
        """Held back until the first bytes are known, because the reservation may still fail."""

    async def __call__(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                length = 0 if message["status"] in _EMPTY else _length(message)
                if length is None or length > SMALL:
                    self._start = message
                    if length is None:
                        self._holding.reserve(STREAM)
                        await self._begin()
                    return
            case "websocket.accept":
                self._holding.reserve(STREAM)
            case "http.response.body" if len(message.get("body", b"")) > _PIECE:
                await self._in_pieces(message)
                return
            case _:
                await self._begin()
        await self._send(message)

    async def _begin(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)

    async def _in_pieces(self, message: Message) -> None:
        body = memoryview(message["body"])
        if self._start is not None:
            self._holding.reserve(len(body))
            await self._begin()
        else:
            self._holding.extend(len(body))
        more = message.get("more_body", False)
        for at in range(0, len(body), _PIECE):
            piece, last = bytes(body[at : at + _PIECE]), at + _PIECE >= len(body)
            await self._send({"type": "http.response.body", "body": piece, "more_body": more or not last})


def _length(start: Message) -> int | None:
    for name, value in start.get("headers", ()):
        if name == b"content-length":
            return int(value)
    return None
