"""JSON that somebody else wrote, counted before it is parsed.

Parsing, validating and complaining cost far more per value than reading a byte, and the C parser lets nothing else in
this process run meanwhile. So a text with more values than any caller needs is refused by a count that costs next to
nothing: separators outside of strings, found without a step of Python for each.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from paddock import errors

MAX_REQUEST_VALUES: Final = 20_000
"""Of one request: fields, items and containers together."""
MAX_SANDBOX_VALUES: Final = 200_000
"""Of one message from inside a sandbox: the points of a large chart."""

_SLICE_BYTES = 1 << 20
_CHECKED_BYTES = 64 << 10
"""Counted between two looks whether it is too much already."""
_OTHER = bytes(byte for byte in range(256) if byte not in b'",[{')


class ValueCounter:
    """Counts the values of a JSON text that comes in pieces. Strings may hold anything; they count once."""

    def __init__(self) -> None:
        self.values = 1
        self._in_string = False
        self._escape = b""

    def feed(self, piece: bytes) -> None:
        piece = self._escape + piece
        # An escape may be cut in two: its backslash then waits for the next piece.
        slashes = len(piece) - len(piece.rstrip(b"\\"))
        self._escape = b"\\" if slashes % 2 else b""
        piece = piece[: len(piece) - len(self._escape)]
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Every second part stands between quotes.
        parts = piece.translate(None, _OTHER).split(b'"')
        self.values += sum(map(len, parts[self._in_string :: 2]))
        self._in_string ^= len(parts) % 2 == 0


def check(text: bytes, most: int = MAX_REQUEST_VALUES) -> None:
    """Raises Invalid. For texts of up to a megabyte; ``check_large`` lets others run in between."""
    if _plainly_few(text, most):
        return
    counter = ValueCounter()
    for at in range(0, len(text), _CHECKED_BYTES):
        counter.feed(text[at : at + _CHECKED_BYTES])
        _judge(counter, most)


async def check_large(text: bytes, most: int = MAX_REQUEST_VALUES) -> None:
    if len(text) <= _SLICE_BYTES:
        check(text, most)
        return
    counter = ValueCounter()
    for at in range(0, len(text), _SLICE_BYTES):
        counter.feed(text[at : at + _SLICE_BYTES])
        _judge(counter, most)
        await asyncio.sleep(0)


def loads(text: bytes, most: int = MAX_REQUEST_VALUES) -> Any:
    """Raises Invalid for too many values, ValueError for what is no JSON or nested too deeply to be read."""
    check(text, most)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


async def loads_large(text: bytes, most: int = MAX_SANDBOX_VALUES) -> Any:
    """The same for messages of several megabytes, most of which is one string."""
    await check_large(text, most)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _plainly_few(text: bytes, most: int) -> bool:
    """Even if no sign of the text stood in a string."""
    return text.count(b",") + text.count(b"{") + text.count(b"[") < most


def _judge(counter: ValueCounter, most: int) -> None:
    if counter.values > most:
        raise errors.Invalid(
            f"The JSON has more than {most} values. Send less at a time, or put the data into a file.",
            details={"max_values": most},
        )
