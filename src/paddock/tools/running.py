"""Runs programs for tools, in the environment of the sandbox's user, with progress reports while they run."""

from __future__ import annotations

import asyncio
import codecs
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import OutputChunk, ProcessInfo, ProcessSpec, Stream
from paddock.tools import environment
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed

BEAT = 3.0
"""Seconds between two progress reports."""
LABEL = "paddock tool: "
"""Label prefix of processes that a tool runs for itself, which are not tasks of the model."""
NOT_FOUND = 127

_READ_BYTES = 1 << 18
_DECODED_BYTES = 1 << 20
"""Bytes decoded at once; other tasks run in between."""
_EXEC = '[ -r "$0" ] && . "$0"; exec "$@"'
_SHELL = (
    '[ -r "$0" ] && . "$0"; [ -x /bin/bash ] && exec /bin/bash -c "$1"; '
    'b=$(command -v bash) && exec "$b" -c "$1"; exec /bin/sh -c "$1"'
)


@dataclass(frozen=True, slots=True)
class ProgramResult:
    info: ProcessInfo
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        return self.info.exit_code == 0

    @property
    def out(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        return self.stderr.decode(errors="replace")


def program(ctx: ToolContext, argv: Sequence[str]) -> list[str]:
    """The command line of a program in the persistent environment."""
    return ["/bin/sh", "-c", _EXEC, environment.file(ctx), *argv]


def shell(ctx: ToolContext, command: str) -> list[str]:
    """The same for a command of bash, or of sh if there is no bash."""
    return ["/bin/sh", "-c", _SHELL, environment.file(ctx), command]


async def run(
    ctx: ToolContext,
    argv: Sequence[str],
    *,
    what: str,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 60.0,
    limit: int = 4 << 20,
    stdin: bytes | None = None,
) -> ProgramResult:
    """Run a program until it ends. It is killed at the timeout, or if the caller is cancelled."""
    spec = ProcessSpec(
        process_id=new_process_id(),
        argv=program(ctx, argv),
        cwd=cwd or ctx.workspace,
        env=environment.given(env or {}),
        user=ctx.user,
        stdin=stdin is not None,
        hard_timeout=seconds + 30,  # in case this server dies meanwhile
        label=f"{LABEL}{what}",
    )
    machine = ctx.machine
    try:
        if stdin is not None:
            await machine.spawn(spec)
            with suppress(errors.ProcessEnded):  # the program may not read its input
                await machine.write_stdin(spec.process_id, stdin)
                await machine.close_stdin(spec.process_id)
        info, stdout, stderr = await machine.run(spec, min(BEAT, seconds), limit)
        if info.running:
            info = await wait(ctx, info, seconds - BEAT, what)
            stdout = await read(ctx, info, Stream.STDOUT, 0, limit)
            stderr = await read(ctx, info, Stream.STDERR, 0, limit)
    except asyncio.CancelledError:
        await _end(ctx, spec.process_id)
        raise
    if info.running:
        await _end(ctx, spec.process_id)
        raise ToolFailed(f"{what} took longer than {seconds:g} s and was ended. Try a smaller piece, or run_command.")
    return ProgramResult(info, stdout.data, stderr.data)


async def wait(ctx: ToolContext, info: ProcessInfo, seconds: float, what: str) -> ProcessInfo:
    """Wait for a process that has run for a beat already, until its end or the timeout. Reports progress every few
    seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    deadline = begun + seconds
    while info.running and (left := deadline - loop.time()) > 0:
        said = await last_line(ctx, await ctx.machine.process(info.process_id))
        await ctx.progress(f"{what}: {BEAT + loop.time() - begun:.0f} s. {said}".strip())
        info = await ctx.machine.wait(info.process_id, min(left, BEAT))
    return info


async def output(
    ctx: ToolContext, process_id: str, offset: int = 0, seconds: float | None = None, stderr_offset: int = 0
) -> AsyncGenerator[OutputChunk | None, None]:
    """A process's output as it is written, until its end or the timeout. None if nothing came for a while."""
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    chunks = ctx.machine.follow(process_id, offset, stderr_offset)
    step: asyncio.Future[OutputChunk | None] | None = None
    try:
        while deadline is None or loop.time() < deadline:
            # A task, because a timeout must not cancel the step: its result would be lost.
            step = step or asyncio.ensure_future(_next(chunks))
            await asyncio.wait({step}, timeout=BEAT if deadline is None else min(BEAT, deadline - loop.time()))
            if not step.done():
                yield None
                continue
            chunk, step = step.result(), None
            if chunk is None:
                return
            yield chunk
    finally:
        if step is not None:
            step.cancel()
            await asyncio.wait({step})
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _next(chunks: AsyncIterator[OutputChunk]) -> OutputChunk | None:
    return await anext(chunks, None)


async def last_line(ctx: ToolContext, info: ProcessInfo) -> str:
    for stream, size in ((Stream.STDOUT, info.stdout_size), (Stream.STDERR, info.stderr_size)):
        if size:
            chunk = await ctx.machine.read_output(info.process_id, stream, max(0, size - 300), 300)
            lines = chunk.data.decode(errors="replace").strip().splitlines()
            if lines:
                return lines[-1][-200:]
    return ""


async def read(ctx: ToolContext, info: ProcessInfo, stream: Stream, offset: int, limit: int) -> OutputChunk:
    """Output from ``offset`` on, up to the first gap; if the spool has dropped the beginning, what comes after it."""
    begin, data = offset, bytearray()
    while len(data) < limit:
        wanted = min(_READ_BYTES, limit - len(data))
        chunk = await ctx.machine.read_output(info.process_id, stream, begin + len(data), wanted)
        if data and chunk.skipped:
            break
        begin += chunk.skipped
        if not chunk.data:
            break
        data += chunk.data
    return OutputChunk(stream, begin, bytes(data), begin - offset)


async def whole_characters(chunk: OutputChunk, ended: bool) -> tuple[str, int]:
    """The chunk as text, and the offset to continue at: an incomplete trailing character is left for the next read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = []
    for at in range(0, len(chunk.data), _DECODED_BYTES):
        texts.append(decoder.decode(chunk.data[at : at + _DECODED_BYTES]))
        await asyncio.sleep(0)
    left = len(decoder.getstate()[0])
    texts.append(decoder.decode(b"", final=ended))
    return "".join(texts), chunk.end if ended else chunk.end - left


def needs(ran: ProgramResult, name: str, how: str) -> None:
    """Raise if the program is not installed."""
    if ran.info.exit_code == NOT_FOUND:
        raise ToolFailed(f"{name} is not installed in this sandbox. {how}")


async def _end(ctx: ToolContext, process_id: str) -> None:
    with suppress(errors.ProcessEnded, errors.ProcessNotFound):
        await ctx.machine.signal(process_id, signal.SIGKILL)
