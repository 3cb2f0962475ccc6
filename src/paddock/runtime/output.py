"""A process's output: slices of it as text that never split a character, and attachments that follow it."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from paddock import errors
from paddock.lifecycle.controller import ActiveSandbox
from paddock.machine.base import Machine, OutputChunk, ProcessInfo, Stream, TerminalSize

Output = AsyncGenerator[OutputChunk | ProcessInfo, None]
"""Stream of a process: its state, then output as it is written, then its final state."""

_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """Both output streams of a process from given offsets on, up to the size of one response."""

    info: ProcessInfo
    stdout: OutputChunk
    stderr: OutputChunk

    @property
    def complete(self) -> bool:
        """The process has ended and all output has been read."""
        return (
            not self.info.running
            and self.stdout.end >= self.info.stdout_size
            and self.stderr.end >= self.info.stderr_size
        )

    @property
    def size(self) -> int:
        return len(self.stdout.data) + len(self.stderr.data)

    def cut(self, limit: int) -> OutputSlice:
        """The beginning of each stream, up to ``limit`` bytes; the rest stays readable by offset."""
        cut = (replace(chunk, data=chunk.data[:limit]) for chunk in (self.stdout, self.stderr))
        stdout, stderr = (_whole(self.info, chunk, limit) for chunk in cut)
        return OutputSlice(self.info, stdout, stderr)


def cut_tail(data: bytes) -> int:
    """Number of trailing bytes that are the start of an incomplete UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if 0xF0 <= byte <= 0xF4 else 3 if 0xE0 <= byte < 0xF0 else 2 if 0xC2 <= byte < 0xE0 else 1
        return back if length > back else 0
    return 0


def gap_note(chunk: OutputChunk) -> bytes:
    """Text note for protocols that cannot report a gap: how much is missing before this chunk. Empty if nothing is."""
    return _note(chunk.stream, chunk.skipped, "they were not read in time")


def cut_note(stream: Stream, missing: int, kept: int) -> bytes:
    """The same for a response that holds only the latest bytes."""
    return _note(stream, missing, f"an answer has the latest {kept}")


def _note(stream: Stream, missing: int, why: str) -> bytes:
    return f"\n[paddock: {missing} bytes of {stream.value} are missing here: {why}]\n".encode() if missing else b""


async def read_slice(
    machine: Machine, info: ProcessInfo, stdout_offset: int, stderr_offset: int, limit: int
) -> OutputSlice:
    """Output from these offsets on. ``info`` must be from before the read, so that its sizes are never ahead of it."""
    return OutputSlice(
        info,
        await _read_stream(machine, info, Stream.STDOUT, stdout_offset, limit),
        await _read_stream(machine, info, Stream.STDERR, stderr_offset, limit),
    )


def first_slice(info: ProcessInfo, stdout: OutputChunk, stderr: OutputChunk, limit: int) -> OutputSlice:
    """The same, from what a machine returned as the beginning of the output."""
    return OutputSlice(info, _whole(info, stdout, limit), _whole(info, stderr, limit))


async def _read_stream(machine: Machine, info: ProcessInfo, stream: Stream, offset: int, limit: int) -> OutputChunk:
    size = info.stdout_size if stream is Stream.STDOUT else info.stderr_size
    if not info.running and offset >= size:
        return OutputChunk(stream, offset, b"")
    begin, data = offset, bytearray()
    while len(data) < limit:
        chunk = await machine.read_output(
            info.process_id, stream, begin + len(data), min(_READ_BYTES, limit - len(data))
        )
        if data and chunk.skipped:
            break  # the spool dropped what lay in between; the next read starts there and reports the gap
        begin += chunk.skipped
        if not chunk.data:
            break
        data += chunk.data
    return _whole(info, OutputChunk(stream, begin, bytes(data), begin - offset), limit)


def _whole(info: ProcessInfo, chunk: OutputChunk, limit: int) -> OutputChunk:
    """Drop a trailing incomplete character, unless nothing else fits in the limit."""
    size = info.stdout_size if chunk.stream is Stream.STDOUT else info.stderr_size
    data = chunk.data
    if not info.running and chunk.end >= size:
        return chunk
    tail = cut_tail(data[-4:])
    if not tail or tail == len(data) == limit:
        return chunk
    return replace(chunk, data=data[: len(data) - tail])


async def whole_characters(items: Output) -> Output:
    """The same stream, with an incomplete trailing character held back until its remaining bytes arrive."""
    held: dict[Stream, OutputChunk] = {}
    async with aclosing(items):
        async for item in items:
            if isinstance(item, ProcessInfo):
                for chunk in held.values():
                    yield chunk
                held.clear()
                yield item
                continue
            before = held.pop(item.stream, None)
            if before is not None and before.end != item.offset:
                yield before
            elif before is not None:
                item = OutputChunk(item.stream, before.offset, before.data + item.data, before.skipped)
            keep = len(item.data) - cut_tail(item.data)
            if keep < len(item.data):
                rest = OutputChunk(item.stream, item.offset + keep, item.data[keep:], 0 if keep else item.skipped)
                held[item.stream] = rest
            if keep or not item.data:
                yield replace(item, data=item.data[:keep])


class ProcessAttachment:
    """An attachment to one process, for terminals, WebSockets and followers of its output. Valid while the sandbox's
    ``use`` context is open. Counts the bytes that pass through; ``settle`` records them."""

    def __init__(self, use: ActiveSandbox, info: ProcessInfo) -> None:
        self.info = info
        self._use = use
        self._bytes_in = 0
        self._bytes_out = 0

    async def follow(self, stdout_offset: int = 0, stderr_offset: int = 0) -> Output:
        """Output from these offsets on as it is written, then the process's final state."""
        chunks = self._use.machine.follow(self.info.process_id, stdout_offset, stderr_offset)
        try:
            async for chunk in chunks:
                self._bytes_out += len(chunk.data)
                yield chunk
            self.info = await self._use.machine.process(self.info.process_id)
            yield self.info
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def write_stdin(self, data: bytes, close: bool = False) -> None:
        if data:
            await self._use.machine.write_stdin(self.info.process_id, data)
            self._bytes_in += len(data)
        if close:
            await self._use.machine.close_stdin(self.info.process_id)

    async def signal(self, name: str) -> None:
        """Send a signal, by name with or without ``SIG``, to the whole process group."""
        full = name if name.startswith("SIG") else f"SIG{name}"
        try:
            number = signal.Signals[full]
        except KeyError:
            raise errors.Invalid(f"{name[:20]!r} is not a signal, for example SIGINT or SIGTERM.") from None
        await self._use.machine.signal(self.info.process_id, number)

    async def resize(self, rows: int, cols: int) -> None:
        await self._use.machine.resize(self.info.process_id, TerminalSize(rows, cols))

    async def settle(self) -> None:
        if self._bytes_in or self._bytes_out:
            await self._use.record(bytes_in=self._bytes_in, bytes_out=self._bytes_out)
            self._bytes_in = self._bytes_out = 0
