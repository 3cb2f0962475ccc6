"""Persistent shells, by name: directory, variables and running programs are kept between calls."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock import errors
from paddock.tools import shells
from paddock.tools.contents import turn
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import excerpt
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("shells")

Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,40}$", description="Which shell.", examples=["main"]),
]
Wait = Annotated[float, Field(gt=0, le=3600, description="Seconds to wait. It keeps running after that.")]

KEYS = {
    "enter": "\r", "tab": "\t", "escape": "\x1b", "backspace": "\x7f", "up": "\x1b[A", "down": "\x1b[B",
    "right": "\x1b[C", "left": "\x1b[D", "ctrl-c": "\x03", "ctrl-d": "\x04", "ctrl-z": "\x1a", "ctrl-l": "\x0c",
    "ctrl-\\": "\x1c",
}  # fmt: skip
Key = Literal[
    "enter", "tab", "escape", "backspace", "up", "down", "right", "left",
    "ctrl-c", "ctrl-d", "ctrl-z", "ctrl-l", "ctrl-\\",
]  # fmt: skip
_MAX_LINE = 4000
"""A terminal takes no longer line."""


class ShellAnswer(BaseModel):
    shell: str
    status: Literal["completed", "running", "ended"] = Field(description="Of the command; ended: the shell itself.")
    exit_code: int | None
    output: str
    cwd: str | None = Field(description="Where the shell is now, if it is free.")
    output_file: str | None = Field(description="File with the whole output, if it was too long.")


class ShellState(BaseModel):
    shell: str
    busy: bool
    cwd: str | None
    started_at: float


class Shells(BaseModel):
    shells: list[ShellState]


class Closed(BaseModel):
    shell: str


@kit.tool("shell_open", "Open a shell", idempotent=True)
async def shell_open(
    ctx: ToolContext,
    shell: Name = "main",
    cwd: Annotated[str, Field(description="Initial directory.")] = ".",
) -> ToolReply[ShellState]:
    """Open a shell that stays. shell_run does it by itself; use this to choose where it begins."""
    info, new = await shells.opened(ctx, shell, ctx.path(cwd))
    found = await shells.state(ctx, info)
    if not found.info.running:
        raise ToolFailed(f"The shell ended at once: {shells.plain(found.tail)[-500:]}")
    data = ShellState(shell=shell, busy=not found.free, cwd=found.cwd, started_at=info.started_at)
    return ToolReply(f"Shell {shell} is open{'' if new else ' already'}, in {found.cwd}.", data)


@kit.tool("shell_run", "Run a command in a shell", langchain="shell_interactive", destructive=True, open_world=True)
async def shell_run(
    ctx: ToolContext,
    command: Annotated[str, Field(min_length=1, description="For bash.")],
    shell: Name = "main",
    timeout: Wait = 120,
) -> ToolReply[ShellAnswer]:
    """Run a command in a shell that stays: cd, variables, functions, virtual environments last until it is closed.

    It is on a terminal, so programs may ask questions: when the answer says that it still runs, reply with shell_send
    (or its key ctrl-c), look with shell_view. One shell does one thing at a time: give another name to work beside
    it.
    """
    async with turn(ctx, f"shell {shell}"):
        info, _ = await shells.opened(ctx, shell, ctx.workspace)
        found = await shells.state(ctx, info)
        if found.info.running and not found.free:
            raise _busy(shell, found)
        number, offset = await shells.begin(ctx, info, command)
    seen = await shells.until_done(ctx, info, number, offset, timeout)
    return await _answer(ctx, shell, seen)


@kit.tool("shell_send", "Type into a shell", destructive=True, open_world=True)
async def shell_send(
    ctx: ToolContext,
    text: Annotated[str, Field(description="What to type.")] = "",
    shell: Name = "main",
    press_enter: Annotated[bool, Field(description="After the text.")] = True,
    keys: Annotated[list[Key] | None, Field(description="Keys to press after the text.")] = None,
    wait: Annotated[float, Field(gt=0, le=600, description="Seconds to wait for the shell to be free again.")] = 3,
) -> ToolReply[ShellAnswer]:
    """Type into the program that runs in a shell: an answer to its question, or keys such as ctrl-c.

    Answers with what was written after that, within the time to wait.
    """
    if any(len(line) > _MAX_LINE for line in text.split("\n")):
        raise ToolFailed(f"A terminal takes lines of at most {_MAX_LINE} characters. Write it to a file instead.")
    info = await shells.existing(ctx, shell)
    typed = text + ("\r" if press_enter and (text or not keys) else "") + "".join(KEYS[key] for key in keys or [])
    offset = (await ctx.machine.process(info.process_id)).stdout_size
    await shells.send(ctx, info, typed.encode())
    return await _look(ctx, shell, info.process_id, await shells.until_quiet(ctx, info, offset, wait))


@kit.tool("shell_view", "Look at a shell", read_only=True)
async def shell_view(
    ctx: ToolContext,
    shell: Name = "main",
    wait: Annotated[float, Field(ge=0, le=600, description="Seconds to wait for the shell to be free.")] = 0,
    characters: Annotated[int, Field(ge=100, le=30_000, description="Maximum characters of the end.")] = 4000,
) -> ToolReply[ShellAnswer]:
    """The last output of a shell, and whether it is busy. With wait, once its command has ended."""
    info = await shells.existing(ctx, shell)
    found = await shells.state(ctx, info)
    if wait and not found.free:
        await shells.until_quiet(ctx, info, found.info.stdout_size, wait)
        found = await shells.state(ctx, info)
    return await _look(ctx, shell, info.process_id, shells.plain(found.tail)[-characters:])


@kit.tool("shell_list", "List shells", read_only=True, idempotent=True)
async def shell_list(ctx: ToolContext) -> ToolReply[Shells]:
    """The shells that are open: their names, where they are, and whether they are busy."""
    listed = []
    for name, info in sorted((await shells.every(ctx)).items()):
        if info.running:
            found = await shells.state(ctx, info)
            listed.append(ShellState(shell=name, busy=not found.free, cwd=found.cwd, started_at=info.started_at))
    lines = [f"{each.shell}: {'busy' if each.busy else 'free'}, in {each.cwd}" for each in listed]
    return ToolReply("\n".join(lines) or "No shell is open.", Shells(shells=listed))


@kit.tool("shell_close", "Close a shell", destructive=True)
async def shell_close(ctx: ToolContext, shell: Name = "main") -> ToolReply[Closed]:
    """End a shell and what runs in it. Its directory and variables are forgotten."""
    info = await shells.existing(ctx, shell)
    for number in (signal.SIGHUP, signal.SIGKILL):
        with suppress(errors.ProcessEnded):
            await ctx.machine.signal(info.process_id, number)
        if not (await ctx.machine.wait(info.process_id, 5)).running:
            break
    return ToolReply(f"Closed shell {shell}.", Closed(shell=shell))


async def _answer(ctx: ToolContext, shell: str, seen: shells.CommandView) -> ToolReply[ShellAnswer]:
    cut = await excerpt(ctx, seen.output, f"shell-{shell}")
    status: Literal["completed", "running", "ended"] = "completed"
    ending = f"[exit code {seen.exit_code}, in {seen.cwd}]"
    if seen.exit_code is None:
        status = "ended" if seen.shell_ended else "running"
        ending = (
            "[the shell itself has ended; the next shell_run opens a new one]"
            if seen.shell_ended
            else "[still running: answer it with shell_send, look again with shell_view]"
        )
    data = ShellAnswer(
        shell=shell,
        status=status,
        exit_code=seen.exit_code,
        output=cut.text,
        cwd=seen.cwd,
        output_file=cut.file,
    )
    return ToolReply(f"{cut.text.rstrip() or '(no output)'}\n{ending}", data)


async def _look(ctx: ToolContext, shell: str, process_id: str, output: str) -> ToolReply[ShellAnswer]:
    found = await shells.state(ctx, await ctx.machine.process(process_id))
    code = found.exit_code if found.free else None
    return await _answer(
        ctx, shell, shells.CommandView(output, code, found.cwd if found.free else None, not found.info.running)
    )


def _busy(shell: str, found: shells.ShellStatus) -> ToolFailed:
    return ToolFailed(
        f"Shell {shell} is busy with a command. Its last output:\n{shells.plain(found.tail)[-1500:]}\n"
        'Answer it with shell_send, interrupt it with shell_send and keys ["ctrl-c"], wait with shell_view, or use '
        "another shell."
    )
