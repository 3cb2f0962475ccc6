"""Persistent shells: one bash on a terminal per name, which keeps its directory, variables and programs between calls.

The shell marks in its output where each command begins (its number) and, by its prompt, where it ended (number, exit
code, directory). The output alone thus shows what belongs to which command and whether the shell is free, so no server
needs to keep state.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import shlex
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

from paddock import errors
from paddock.machine.base import ProcessInfo, ProcessSpec, Stream, TerminalSize
from paddock.tools import environment, running
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once
from paddock.tools.tool import ToolFailed

_SIZE = TerminalSize(rows=50, cols=200)
_LABEL = re.compile(r"shell (\S+) #(\d{1,9})")
_TAIL_BYTES = 1 << 16
_READY_TIMEOUT_S = 60.0
_MAX_OUTPUT_BYTES = 8 << 20
_MAX_MARK_BYTES = 8192
"""In bytes: a number, an exit code, and the path of a directory."""

_MARK = re.compile(r"\x1e(?:B([0-9a-f]+)|E([0-9a-f]*);(\d{1,9});([^\x1e]*))\x1e")
_PROMPT = re.compile(r"\x1eE[^\x1e]*\x1e$")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_RC = """[ -n "$BASH" ] && [ -r ~/.bashrc ] && . ~/.bashrc
[ -r {environment} ] && . {environment}
stty -echo 2>/dev/null
unset PROMPT_COMMAND HISTFILE ENV
PS1='\x1eE${{paddock_command-}};$?;$PWD\x1e' PS2=
"""
_START = (
    'export PAGER=cat GIT_PAGER=cat TERM=dumb; b=$(command -v bash) && exec "$b" --noprofile --rcfile "$0" '
    '--noediting -i; ENV="$0" exec /bin/sh -i'
)


@dataclass(frozen=True, slots=True)
class CommandView:
    """What one command has produced so far."""

    output: str
    exit_code: int | None
    """None while it runs, or if the shell itself has ended."""
    cwd: str | None
    shell_ended: bool = False


@dataclass(frozen=True, slots=True)
class ShellStatus:
    info: ProcessInfo
    tail: str
    """The end of its output, with marks."""

    @property
    def free(self) -> bool:
        marks = list(_MARK.finditer(self.tail))
        return bool(marks) and marks[-1][1] is None

    @property
    def exit_code(self) -> int | None:
        """Of the last command that has ended."""
        return next((int(mark[3]) for mark in reversed(list(_MARK.finditer(self.tail))) if mark[3] is not None), None)

    @property
    def cwd(self) -> str | None:
        return next((mark[4] for mark in reversed(list(_MARK.finditer(self.tail))) if mark[4] is not None), None)


async def every(ctx: ToolContext) -> dict[str, ProcessInfo]:
    """The latest shell of each name."""
    found: dict[str, tuple[int, ProcessInfo]] = {}
    for process in await ctx.machine.processes():
        label = _LABEL.fullmatch(process.label)
        if label and process.process_id == _process_id(ctx, label[1], int(label[2])):
            found[label[1]] = max(found.get(label[1], (0, process)), (int(label[2]), process), key=lambda each: each[0])
    return {name: process for name, (_, process) in found.items()}


async def existing(ctx: ToolContext, name: str) -> ProcessInfo:
    process = (await every(ctx)).get(name)
    if process is None or not process.running:
        raise ToolFailed(f"No shell {name!r} is open. shell_run opens it; shell_list shows those that are.")
    return process


async def opened(ctx: ToolContext, name: str, cwd: str) -> tuple[ProcessInfo, bool]:
    """The shell of this name, and whether it is new."""
    process = (await every(ctx)).get(name)
    if process is not None and process.running:
        return process, False
    number = 1
    if process is not None:
        number += int(process.label.rpartition("#")[2])
    rc = f"{ctx.folder}/shells/rc"
    script = _RC.format(environment=shlex.quote(environment.file(ctx)))
    await ctx.machine.write_file(rc, once(script.encode()), user=ctx.user)
    spec = ProcessSpec(
        process_id=_process_id(ctx, name, number),
        argv=["/bin/sh", "-c", _START, rc],
        cwd=cwd,
        user=ctx.user,
        terminal=_SIZE,
        stdin=True,
        label=f"shell {name} #{number}",
    )
    info = await ctx.machine.spawn(spec)
    await _follow(ctx, info, 0, _READY_TIMEOUT_S, lambda news: _MARK.search(news) is not None)
    return info, True


async def state(ctx: ToolContext, info: ProcessInfo) -> ShellStatus:
    now = await ctx.machine.process(info.process_id)
    chunk = await running.read(ctx, now, Stream.STDOUT, max(0, now.stdout_size - _TAIL_BYTES), _TAIL_BYTES)
    return ShellStatus(now, chunk.data.decode(errors="replace"))


async def begin(ctx: ToolContext, info: ProcessInfo, command: str) -> tuple[str, int]:
    """Start a command in the shell. Returns its number, and the offset of its output."""
    number = secrets.token_hex(6)
    path = f"{ctx.folder}/shells/{number}.sh"
    await ctx.machine.write_file(path, once(f"{command}\n".encode()), user=ctx.user)
    offset = (await ctx.machine.process(info.process_id)).stdout_size
    # From a file, because a command may exceed a terminal's line length and contain any quotes.
    line = f"paddock_command={number}; printf '\\036B%s\\036' {number}; . {shlex.quote(path)}\n"
    await send(ctx, info, line.encode())
    # Wait until the shell has read the line: input sent next must not be read as part of it.
    await _follow(ctx, info, offset, _READY_TIMEOUT_S, lambda news: f"\x1eB{number}\x1e" in news)
    return number, offset


async def send(ctx: ToolContext, info: ProcessInfo, data: bytes) -> None:
    try:
        await ctx.machine.write_stdin(info.process_id, data)
    except errors.ProcessEnded:
        raise ToolFailed("The shell has ended meanwhile. shell_run opens a new one.") from None


async def until_done(ctx: ToolContext, info: ProcessInfo, number: str, offset: int, seconds: float) -> CommandView:
    end_mark = re.compile(rf"\x1eE{number};\d{{1,9}};[^\x1e]*\x1e")
    text = await _follow(ctx, info, offset, seconds, lambda news: end_mark.search(news) is not None)
    said = await ctx.workers.call(len(text), _said, text, number)
    if said.exit_code is None:
        ended = not (await ctx.machine.process(info.process_id)).running
        return CommandView(said.output, None, None, ended)
    with suppress(errors.PaddockError):
        await ctx.machine.remove(f"{ctx.folder}/shells/{number}.sh", user=ctx.user)
    return said


async def until_quiet(ctx: ToolContext, info: ProcessInfo, offset: int, seconds: float) -> str:
    """Output from this offset on, until the shell waits for a command again or the timeout."""
    text = await _follow(ctx, info, offset, seconds, lambda news: _PROMPT.search(news) is not None)
    return await ctx.workers.call(len(text), plain, text)


def plain(text: str) -> str:
    """Remove marks, colours and terminal control sequences."""
    text = _ESCAPES.sub("", _MARK.sub("", text)).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_overwritten(line) for line in text.split("\n"))
    return text.replace("\x07", "")


def _overwritten(line: str) -> str:
    """What is visible of a line with carriage returns: the text after the last one."""
    return line[line.rfind("\r", 0, len(line) - 1) + 1 :] if line else line


def _said(text: str, number: str) -> CommandView:
    """The view of one command, by its number."""
    begun = text.find(f"\x1eB{number}\x1e")
    if begun >= 0:
        for mark in _MARK.finditer(text, begun):
            if mark[2] == number:
                return CommandView(plain(text[begun : mark.start()]), int(mark[3]), mark[4])
    return CommandView(plain(text[max(begun, 0) :]), None, None)


async def _follow(ctx: ToolContext, info: ProcessInfo, offset: int, seconds: float, done: Callable[[str], bool]) -> str:
    """Output from this offset on, until ``done``, the shell's end or the timeout.

    ``done`` is called with new output and as much before it as a mark may take: checking all output at every chunk
    would cost quadratic time.
    """
    loop = asyncio.get_running_loop()
    begun = told = loop.time()
    data = bytearray()
    async with aclosing(running.output(ctx, info.process_id, offset, seconds)) as chunks:
        async for chunk in chunks:
            if chunk is not None:
                data += chunk.data
                del data[: max(0, len(data) - _MAX_OUTPUT_BYTES)]
                news = data[-len(chunk.data) - _MAX_MARK_BYTES :] if b"\x1e" in chunk.data else b""
                if news and done(news.decode(errors="replace")):
                    break
            if loop.time() - told >= running.BEAT:
                told = loop.time()
                await ctx.progress(f"Running: {told - begun:.0f} s, {len(data)} bytes of output.")
    return data.decode(errors="replace")


def _process_id(ctx: ToolContext, name: str, number: int) -> str:
    """Deterministic: a machine starts no second process with the same id, so concurrent calls open one shell."""
    named = f"shell\n{ctx.machine.sandbox_id}\n{name}\n{number}"
    return "p_" + hashlib.sha256(named.encode()).hexdigest()[:16]
