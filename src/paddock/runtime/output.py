"""Text out of byte streams: slices of a process's output that never cut a character in two."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from paddock.machine.base import Machine, OutputChunk, ProcessInfo, Stream

Output = AsyncGenerator[OutputChunk | ProcessInfo, None]
"""A process as it goes: first its state, then its output as it comes, at last its state at the end."""

_SLICE = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """Both streams of a process from given offsets on, as far as one answer may go."""

    info: ProcessInfo
    stdout: OutputChunk
    stderr: OutputChunk

    @property
    def complete(self) -> bool:
        """The process has ended and nothing is left to read."""
        return (
            not self.info.running
            and self.stdout.end >= self.info.stdout_size
            and self.stderr.end >= self.info.stderr_size
        )

    @property
    def size(self) -> int:
        return len(self.stdout.data) + len(self.stderr.data)

    def cut(self, limit: int) -> OutputSlice:
        """So much of the beginning of each stream; the rest stays readable by offset."""
        cut = (replace(chunk, data=chunk.data[:limit]) for chunk in (self.stdout, self.stderr))
        stdout, stderr = (_whole(self.info, chunk, limit) for chunk in cut)
        return OutputSlice(self.info, stdout, stderr)


def cut_tail(data: bytes) -> int:
    """How many bytes at the end are the beginning of a UTF-8 character whose rest has not come yet."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if 0xF0 <= byte <= 0xF4 else 3 if 0xE0 <= byte < 0xF0 else 2 if 0xC2 <= byte < 0xE0 else 1
        return back if length > back else 0
    return 0


def gap_note(chunk: OutputChunk) -> bytes:
    """For clients whose protocol has no word for it: what is missing before this chunk. Empty: nothing is."""
    return _note(chunk.stream, chunk.skipped, "they were not read in time")


def cut_note(stream: Stream, missing: int, kept: int) -> bytes:
    """The same before an answer that holds the latest bytes alone."""
    return _note(stream, missing, f"an answer has the latest {kept}")


def _note(stream: Stream, missing: int, why: str) -> bytes:
    return f"\n[paddock: {missing} bytes of {stream.value} are missing here: {why}]\n".encode() if missing else b""


async def read_slice(
    machine: Machine, info: ProcessInfo, stdout_offset: int, stderr_offset: int, limit: int
) -> OutputSlice:
    """What there is from these offsets on. ``info`` is from before the read, so that its sizes are never ahead."""
    return OutputSlice(
        info,
        await _read_stream(machine, info, Stream.STDOUT, stdout_offset, limit),
        await _read_stream(machine, info, Stream.STDERR, stderr_offset, limit),
    )


def first_slice(info: ProcessInfo, stdout: OutputChunk, stderr: OutputChunk, limit: int) -> OutputSlice:
    """The same from what a machine gave of the beginning."""
    return OutputSlice(info, _whole(info, stdout, limit), _whole(info, stderr, limit))


async def _read_stream(machine: Machine, info: ProcessInfo, stream: Stream, offset: int, limit: int) -> OutputChunk:
    size = info.stdout_size if stream is Stream.STDOUT else info.stderr_size
    if not info.running and offset >= size:
        return OutputChunk(stream, offset, b"")
    begin, data = offset, bytearray()
    while len(data) < limit:
        chunk = await machine.read_output(info.process_id, stream, begin + len(data), min(_SLICE, limit - len(data)))
        if data and chunk.skipped:
            break  # the spool dropped what lay between: the next read begins there, and says so
        begin += chunk.skipped
        if not chunk.data:
            break
        data += chunk.data
    return _whole(info, OutputChunk(stream, begin, bytes(data), begin - offset), limit)


def _whole(info: ProcessInfo, chunk: OutputChunk, limit: int) -> OutputChunk:
    """Without the beginning of a character whose rest is still to come, unless that is all that fits."""
    size = info.stdout_size if chunk.stream is Stream.STDOUT else info.stderr_size
    data = chunk.data
    if not info.running and chunk.end >= size:
        return chunk
    tail = cut_tail(data[-4:])
    if not tail or tail == len(data) == limit:
        return chunk
    return replace(chunk, data=data[: len(data) - tail])


async def whole_characters(items: Output) -> Output:
    """The same stream, with the beginning of a cut character held back until its rest comes."""
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
