"""Complete output in one answer: its latest part, with a note about what is missing, encoded in parts."""

from __future__ import annotations

import asyncio
import codecs
import json
import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass

from paddock import errors
from paddock.accounts.byte_budget import SMALL, Reservation
from paddock.api.compat.daytona.toolbox.inside import ToolboxContext
from paddock.machine.base import Machine, OutputChunk, ProcessInfo, ProcessSpec, Stream
from paddock.runtime.output import cut_note, gap_note

MAX_OUTPUT = 8 << 20
"""Maximum bytes of each stream in an answer."""
COPIES = 3
"""Copies in memory: as received, joined, and in the answer."""
_PIECE = 256 << 10
_MAX_CONTINUATION_BYTES = 3
"""Maximum continuation bytes of a UTF-8 character."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    info: ProcessInfo
    output: bytes
    note: bytes
    """A message that the beginning is missing; empty if it is not."""


async def run(inside: ToolboxContext, spec: ProcessSpec, fed: bytes | None) -> CommandOutput:
    """Run a process to its end. It is followed while it runs, so that no output is lost."""
    latest = LatestOutput(inside.caller.holding)
    machine = inside.machine
    info: ProcessInfo | None = None
    feeding: asyncio.Task[None] | None = None
    try:
        async with aclosing(machine.begin(spec, linger=False)) as items:
            async for item in items:
                if isinstance(item, OutputChunk):
                    latest.add(item)
                    continue
                info = item
                if feeding is None and fed is not None:
                    feeding = asyncio.create_task(_feed(machine, spec.process_id, fed), name="input of a command")
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.wait({feeding})
    if feeding is not None and not feeding.cancelled():
        feeding.result()
    assert info is not None  # noqa: S101 (the last item is the process)
    output = latest.whole()
    return CommandOutput(info, output, latest.note(len(output)))


async def _feed(machine: Machine, process_id: str, fed: bytes) -> None:
    try:
        await machine.write_stdin(process_id, fed)
        await machine.close_stdin(process_id)
    except errors.ProcessEnded:
        pass  # the program did not read all of its input; its exit code is reported
    except errors.PaddockError:
        with suppress(errors.PaddockError):  # it would wait for input for ever
            await machine.signal(process_id, signal.SIGKILL)
        raise


@dataclass(slots=True)
class _Piece:
    data: bytearray
    skipped: int = 0
    """Bytes missing before this chunk."""


class LatestOutput:
    """The newest bytes of one stream, as many as fit an answer and the user's memory budget."""

    def __init__(self, holding: Reservation, limit: int = MAX_OUTPUT) -> None:
        self._holding = holding
        self._limit = limit
        self._pieces: deque[_Piece] = deque()
        self._size = 0
        self._missing = 0

    def add(self, chunk: OutputChunk) -> None:
        if self._pieces and not chunk.skipped and len(self._pieces[-1].data) < _PIECE:
            self._pieces[-1].data += chunk.data  # many programs write a few bytes at a time
        else:
            self._pieces.append(_Piece(bytearray(chunk.data), chunk.skipped))
        self._size += len(chunk.data)
        size = min(self._size, self._limit)
        if not self._holding.try_reserve(COPIES * size):
            self._limit = max(size - len(chunk.data), SMALL)  # the command is running, and is not killed for that
        while self._size - len(self._pieces[0].data) >= self._limit:
            dropped = self._pieces.popleft()
            self._size -= len(dropped.data)
            self._missing += dropped.skipped + len(dropped.data)

    def whole(self) -> bytes:
        """The output as one chunk; empties this object."""
        if (over := self._size - self._limit) > 0:
            first = self._pieces[0]
            self._missing += first.skipped + over
            first.skipped = 0
            del first.data[:over]
        data = b"".join(_gap(piece) + piece.data for piece in self._pieces)
        self._pieces.clear()
        broken = leading_rest(data) if self._missing else 0
        self._missing += broken
        return data[broken:]

    def note(self, kept: int) -> bytes:
        return cut_note(Stream.STDOUT, self._missing, kept)


def _gap(piece: _Piece) -> bytes:
    return gap_note(OutputChunk(Stream.STDOUT, 0, b"", piece.skipped))


def leading_rest(data: bytes) -> int:
    """Number of leading bytes that continue a truncated UTF-8 character."""
    rest = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data))
    return rest if rest <= _MAX_CONTINUATION_BYTES else 0  # more of them are not valid UTF-8


async def json_text(*texts: bytes) -> bytes:
    """Encode all chunks as one JSON string."""
    pieces = [b'"']
    async with aclosing(_pieces(texts)) as escaped:
        async for piece in escaped:
            pieces.append(piece)
    pieces.append(b'"')
    return b"".join(pieces)


async def _pieces(texts: tuple[bytes, ...]) -> AsyncGenerator[bytes, None]:
    for text in texts:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for at in range(0, len(text), _PIECE):
            piece = decoder.decode(text[at : at + _PIECE], final=at + _PIECE >= len(text))
            yield json.dumps(piece, ensure_ascii=False)[1:-1].encode()
            await asyncio.sleep(0)
