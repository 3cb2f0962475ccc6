"""Coding agents that run inside the sandbox, as programs that report their progress in JSON lines."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from pydantic import BaseModel, Field

from paddock import errors, json_limits
from paddock.ids import new_process_id
from paddock.loop_turns import give_turn
from paddock.machine.base import ProcessInfo, ProcessSpec, Stream
from paddock.machine.lines import LineBuffer
from paddock.tools import environment, running
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed

_MAX_LINE = 8 << 20
HOMES = 'PATH="$PATH:$HOME/.local/bin:$HOME/.npm-global/bin"; export PATH; '
"""For shells that look for programs installed by the user."""
_PATH = HOMES + 'command -v "$1" >/dev/null || exit 127; '


class AgentAnswer(BaseModel):
    result: str = Field(description="Its last message.")
    session_id: str | None = Field(description="To continue in a later call.")
    steps: int = Field(description="How many tools it used.")
    cost_usd: float | None = Field(description="If it reports it.")
    result_file: str | None = Field(default=None, description="File with the whole answer, if it was too long.")


class AgentRun(ABC):
    """What is known from the lines so far."""

    session_id: str | None = None
    result: str = ""
    problem: str = ""
    steps: int = 0
    cost_usd: float | None = None

    @abstractmethod
    def hear(self, event: Mapping[str, Any]) -> str | None:
        """Process one line. Returns a progress message, if there is one."""


async def run_agent(
    ctx: ToolContext,
    conversation: AgentRun,
    argv: Sequence[str],
    *,
    prompt: str,
    cwd: str,
    seconds: float,
    before: str = "",
) -> ProcessInfo:
    """Run the agent until its end. ``before``: shell code to run first."""
    spec = ProcessSpec(
        process_id=new_process_id(),
        argv=running.program(ctx, ["/bin/sh", "-c", f'{_PATH}{before}exec "$@"', "sh", *argv]),
        cwd=cwd,
        env=environment.given({}),
        user=ctx.user,
        stdin=True,
        hard_timeout=seconds + 30,
        label=f"{argv[0]}: {' '.join(prompt.split())[:200]}",
    )
    await ctx.machine.spawn(spec)
    try:
        with suppress(errors.ProcessEnded):
            await ctx.machine.write_stdin(spec.process_id, prompt.encode(errors="replace"))
            await ctx.machine.close_stdin(spec.process_id)
        async with asyncio.timeout(seconds):
            await _listen(ctx, spec.process_id, conversation)
            return await ctx.machine.wait(spec.process_id, seconds)
    except TimeoutError:
        await _end(ctx, spec.process_id)
        more = f" Continue with session_id {conversation.session_id!r}." if conversation.session_id else ""
        raise ToolFailed(f"{argv[0]} was not done after {seconds:g} s and was ended.{more}") from None
    except (asyncio.CancelledError, ToolFailed):
        await _end(ctx, spec.process_id)
        raise


async def said(ctx: ToolContext, info: ProcessInfo) -> str:
    """The end of its error output, or of its output if there is none."""
    for stream in (Stream.STDERR, Stream.STDOUT):
        size = info.stderr_size if stream is Stream.STDERR else info.stdout_size
        chunk = await running.read(ctx, info, stream, max(0, size - 2000), 2000)
        if text := chunk.data.decode(errors="replace").strip():
            return text
    return f"exit code {info.exit_code}"


async def _listen(ctx: ToolContext, process_id: str, conversation: AgentRun) -> None:
    loop = asyncio.get_running_loop()
    begun = told = loop.time()
    news = "working"
    lines = _JsonLines(conversation.hear)
    async with aclosing(running.output(ctx, process_id)) as chunks:
        async for chunk in chunks:
            if chunk is not None and chunk.stream is Stream.STDOUT:
                news = await lines.feed(chunk.data) or news
            if loop.time() - told >= running.BEAT:
                told = loop.time()
                await ctx.progress(f"{told - begun:.0f} s: {news}")
    await lines.feed(b"\n")


class _JsonLines:
    def __init__(self, hear: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._hear = hear
        self._lines = LineBuffer()

    async def feed(self, data: bytes) -> str | None:
        news = None
        for line in self._lines.feed(data):
            await give_turn()
            try:
                event = await json_limits.loads_large(line)
            except (ValueError, errors.Invalid):  # a warning, a banner, or JSON above the limits
                continue
            if isinstance(event, dict):
                news = self._hear(event) or news
        if len(self._lines) > _MAX_LINE:
            raise ToolFailed(f"The agent wrote a line of over {_MAX_LINE} bytes. Ask it for less at a time.")
        return news


async def _end(ctx: ToolContext, process_id: str) -> None:
    with suppress(errors.ProcessEnded, errors.ProcessNotFound):
        await ctx.machine.signal(process_id, signal.SIGTERM)
        if (await ctx.machine.wait(process_id, 5)).running:
            await ctx.machine.signal(process_id, signal.SIGKILL)
