"""A file as one JSON response, encoded while it is sent: only the file itself is held in memory."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.accounts.byte_budget import Reservation
from paddock.models import FileContent

_PIECE = 48 << 10
"""A multiple of three, so that each chunk's base64 can be concatenated."""
_ONE_CHUNK_BYTES = 64 << 10
"""Files up to this size are sent in one chunk."""


class FileContentAnswer(Response):
    """Has the fields of :class:`~paddock.models.FileContent`."""

    media_type = "application/json"

    def __init__(self, path: str, data: bytearray, encoding: Literal["utf-8", "base64"]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._data = data
        about = FileContent(path=path, content="", encoding=encoding, size=len(data)).model_dump(exclude={"content"})
        self._head = json.dumps(about).encode()[:-1] + b', "content": "'
        self._write = _as_base64 if encoding == "base64" else _as_text

    @classmethod
    async def of(cls, path: str, data: bytearray, encoding: Literal["utf-8", "base64"]) -> Response:
        """Raises UnicodeDecodeError before the status is sent."""
        if len(data) <= _ONE_CHUNK_BYTES:
            content = base64.b64encode(data).decode() if encoding == "base64" else data.decode()
            whole = FileContent(path=path, content=content, encoding=encoding, size=len(data))
            return Response(whole.model_dump_json(), media_type="application/json")
        if encoding == "utf-8":
            await asyncio.to_thread(_check_text, data)
        return cls(path, data, encoding)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._head, "more_body": True})
        for piece in self._write(self._data):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # sending to a fast reader never blocks; give other tasks a turn
        await send({"type": "http.response.body", "body": b'"}', "more_body": False})


def _pieces(data: bytearray) -> Iterator[bytes]:
    for at in range(0, len(data), _PIECE):
        yield bytes(data[at : at + _PIECE])


def _check_text(data: bytearray) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for piece in _pieces(data):
        decoder.decode(piece)
    decoder.decode(b"", final=True)


def _as_base64(data: bytearray) -> Iterator[bytes]:
    return map(base64.b64encode, _pieces(data))


def _as_text(data: bytearray) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for piece in _pieces(data):
        yield json.dumps(decoder.decode(piece), ensure_ascii=False)[1:-1].encode()


Item = TypeVar("Item")

_AT_A_TIME = 500
_COPIES = 2
"""Copies in memory: the parts, and the answer."""


async def json_items(items: Sequence[Item], shown: Callable[[Item], Any], holding: Reservation) -> bytes:
    """The items of a JSON array as bytes, without brackets. Reserves memory as it grows: raises TooManyBytes or
    Overloaded."""

    async def shown_now(some: Sequence[Item]) -> list[Any]:
        return [shown(item) for item in some]

    return await json_pieces(items, shown_now, holding)


async def json_pieces(
    items: Sequence[Item], shown: Callable[[Sequence[Item]], Awaitable[list[Any]]], holding: Reservation
) -> bytes:
    """The same for items that are converted while encoding, about a hundred at a time."""
    pieces: list[bytes] = []
    size = 0
    for at in range(0, len(items), _AT_A_TIME):
        piece = json.dumps(await shown(items[at : at + _AT_A_TIME]), separators=(",", ":"))
        pieces.append(piece[1:-1].encode("ascii", "backslashreplace"))
        size += len(piece)
        holding.reserve(_COPIES * size)
        await asyncio.sleep(0)
    return b",".join(pieces)
