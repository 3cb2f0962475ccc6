"""Limits for messages of a user's server: bytes and values, counted before the SDK parses them.

The SDK parses a message as a whole, on the event loop, and limits only the size of events. A message that is too large,
or exceeds the user's memory budget, is replaced by a JSON-RPC error, which ends only the request that it answers.
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
"""Requests whose responses may be large."""
MAX_ANSWER: Final = 8 << 20
"""Maximum bytes of such a response."""
MAX_OTHER: Final = 1 << 20
"""Maximum bytes of every other message. What a server reports about itself is kept as long as it is connected."""
MAX_VALUES: Final = 50_000
"""Maximum values per message. The SDK creates objects for them, twice, which takes a tenth of a second at this
number."""
COPIES: Final = 3
"""Copies of a message in memory: as received, as text, and parsed."""
MAX_EVENT_LINES: Final = 10_000
_MAX_RETRY_DIGITS = 6
_INTERNAL_ERROR = -32603


async def check(message: bytes) -> None:
    """Raises Invalid if the message has too many values."""
    await json_limits.check_large(message, MAX_VALUES)


def too_large(most: int) -> errors.PayloadTooLarge:
    return errors.PayloadTooLarge(f"The MCP server's answer is larger than {most} bytes; have it answer in parts.")


def refusal(problem: errors.PaddockError) -> bytes:
    """An error response in place of the refused message, without a request id."""
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
    """The same server-sent events, each when it is complete. After a refused one the stream ends."""
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
    """https://html.spec.whatwg.org/multipage/server-sent-events.html, as read by the SDK."""

    def __init__(self, most: int, memory: MemoryReservation) -> None:
        self._most = most
        self._memory = memory
        self._lines = LineBuffer()
        self._return = b""
        """A carriage return at the end of a part, which may be the first half of a line end."""
        self._data: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}
        self._size = 0

    async def feed(self, part: bytes) -> AsyncGenerator[bytes, None]:
        """An empty part marks the end."""
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
                self._memory.release()  # the consumer has processed the previous event when it asks for the next
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
        # JSON strings contain no line ends, so a space is equivalent; and the SDK reads a single line faster.
        data, fields = b" ".join(self._data), self._fields
        self._data, self._fields, self._size = [], {}, 0
        await check(data)
        head = b"".join(b"%b: %b\n" % field for field in fields.items())
        return head + (b"data: %b\n\n" % data if data else b"\n")
