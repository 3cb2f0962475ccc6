"""What a user's server may say at once: bytes and values, counted before the SDK reads them.

The SDK reads a message as a whole, on the event loop, and its only limit is one on events. So what is too large, or
too much for what its user may hold of this server's memory, is replaced by an error in the protocol's own words, which
ends the one request that it was to answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from paddock import errors, json_limits
from paddock.loop_turns import give_turn
from paddock.machine.lines import LineBuffer
from paddock.memory import MemoryReservation

LONG: Final = frozenset({"tools/call", "tools/list"})
"""Requests that may be answered at length."""
MAX_ANSWER: Final = 8 << 20
"""Bytes of the answer to one of them."""
MAX_OTHER: Final = 1 << 20
"""Bytes of every other message. What a server says of itself is kept for as long as it is connected."""
MAX_VALUES: Final = 50_000
"""Of one message. The SDK makes objects of them, twice, which takes a tenth of a second at this number."""
COPIES: Final = 3
"""Of a message: as it came, as text, and as what it means."""
MAX_EVENT_LINES: Final = 10_000
_MAX_RETRY_DIGITS = 6
_INTERNAL_ERROR = -32603


async def check(message: bytes) -> None:
    """Raises Invalid for one that has too many values."""
    await json_limits.check_large(message, MAX_VALUES)


def too_large(most: int) -> errors.PayloadTooLarge:
    return errors.PayloadTooLarge(f"The MCP server's answer is larger than {most} bytes; have it answer in parts.")


def refusal(problem: errors.PaddockError) -> bytes:
    """An answer in place of the one that was refused, to whichever request it was for."""
    error = {"code": _INTERNAL_ERROR, "message": problem.message}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


async def whole(parts: AsyncIterator[bytes], most: int, memory: MemoryReservation) -> bytes:
    body = bytearray()
    async for part in parts:
        if len(body) + len(part) > most:
            raise too_large(most)
        memory.reserve(COPIES * (len(body) + len(part)))
        body += part
    return bytes(body)


async def events(parts: AsyncIterator[bytes], most: int, memory: MemoryReservation) -> AsyncIterator[bytes]:
    """The same server-sent events, each when it is complete. After one that is refused there are no more."""
    reader = _EventReader(most, memory)
    try:
        async for part in _and_end(parts):
            async with aclosing(reader.feed(part)) as complete:
                async for event in complete:
                    yield event
    except (errors.PayloadTooLarge, errors.Invalid, errors.TooManyBytes, errors.Overloaded) as problem:
        yield b"data: %b\n\n" % refusal(problem)


async def _and_end(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        if part:
            yield part
    yield b""


class _EventReader:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html, as the SDK reads it."""

    def __init__(self, most: int, memory: MemoryReservation) -> None:
        self._most = most
        self._memory = memory
        self._lines = LineBuffer()
        self._return = b""
        """A carriage return at the end of a part, which may be half of a line's end."""
        self._data: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}
        self._size = 0

    async def feed(self, part: bytes) -> AsyncGenerator[bytes, None]:
        """An empty part is the end."""
        text = self._return + part
        self._return = b"\r" if part.endswith(b"\r") else b""
        if self._return:
            text = text[:-1]
        for line in self._lines.feed(text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")):
            await give_turn()
            if line:
                self._take(line)
            elif self._data or self._fields:
                yield await self._event()
                self._memory.release()  # whoever asks for the next has read this one
        self._count(len(self._lines))

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name in (b"event", b"id") or (name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS):
            self._size += len(value) - len(self._fields.get(name, b""))
            self._fields[name] = value
        self._count()

    def _count(self, more: int = 0) -> None:
        size = self._size + more
        if size > self._most or len(self._data) > MAX_EVENT_LINES:
            raise too_large(self._most)
        self._memory.reserve(COPIES * size)

    async def _event(self) -> bytes:
        # JSON's strings have no line ends, so that in JSON a space does as well; and one line costs the SDK less.
        data, fields = b" ".join(self._data), self._fields
        self._data, self._fields, self._size = [], {}, 0
        await check(data)
        head = b"".join(b"%b: %b\n" % field for field in fields.items())
        return head + (b"data: %b\n\n" % data if data else b"\n")
