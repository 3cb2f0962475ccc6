"""Commands, and the tasks that represent running ones."""

from __future__ import annotations

import signal as signals
from contextlib import aclosing, suppress
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.base import ProcessInfo, ProcessSpec
from paddock.tools import environment, running, tasks
from paddock.tools.context import ToolContext
from paddock.tools.tasks import Task
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("commands")

TaskId = Annotated[str, Field(description="From run_command or task_list.", examples=["p_5f0c2a9be1d04477"])]
Offset = Annotated[int | None, Field(ge=0, description="From this byte on. Null: its end.")]
_BACKGROUND_WATCH_S = 0.5
"""Seconds for which a background command is watched before the answer: most commands that fail to start have ended by
then, and a model that was told that a command runs does not check again."""
_LABEL = 1000
_LISTED = 100


@kit.tool("run_command", "Run a command", langchain="shell_exec", destructive=True, open_world=True)
async def run_command(
    ctx: ToolContext,
    command: Annotated[str, Field(min_length=1, description="For bash.")],
    cwd: Annotated[str, Field(description="Working directory.")] = ".",
    timeout: Annotated[
        float, Field(gt=0, le=3600, description="Seconds to wait. After that it continues as a task.")
    ] = 120,
    background: Annotated[bool, Field(description="Return its task id at once.")] = False,
    env: Annotated[dict[str, str] | None, Field(description="Variables for this command only.")] = None,
    keep_input_open: Annotated[bool, Field(description="For task_input. Else its input is empty.")] = False,
    hard_timeout: Annotated[
        float | None, Field(gt=0, le=86_400, description="Seconds after which it is killed.")
    ] = None,
) -> ToolReply[Task]:
    """Run a shell command in the sandbox and answer with its output and exit code.

    Each call is a new shell; in shell_run directory and variables stay. What takes longer than timeout goes on: read
    on with task_output and its task_id. Start servers and watchers with background. Nobody answers questions: use
    flags like -y. Output beyond 30000 characters is kept in a file. For files, the tools for files are better.
    """
    spec = ProcessSpec(
        process_id=new_process_id(),
        argv=running.shell(ctx, command),
        cwd=ctx.path(cwd),
        env=environment.given(env or {}),
        user=ctx.user,
        stdin=keep_input_open,
        hard_timeout=hard_timeout,
        label=command[:_LABEL],
    )
    if background:
        await ctx.machine.spawn(spec)
        info = await ctx.machine.wait(spec.process_id, _BACKGROUND_WATCH_S)
    else:
        info, _, _ = await ctx.machine.run(spec, min(timeout, running.BEAT), 1)
        if info.running:
            info = await running.wait(ctx, info, timeout - running.BEAT, "Running")
    task = await tasks.look(ctx, info, 0, 0)
    return ToolReply(tasks.tell(task), task)


@kit.tool("task_output", "Read the output of a task", read_only=True)
async def task_output(
    ctx: ToolContext,
    task_id: TaskId,
    stdout_offset: Offset = None,
    stderr_offset: Annotated[int | None, Field(ge=0, description="Likewise, of stderr.")] = None,
    wait: Annotated[float, Field(ge=0, le=600, description="Seconds to wait.")] = 0,
    until: Annotated[Literal["output", "end"], Field(description="What to wait for.")] = "output",
) -> ToolReply[Task]:
    """What a task has written, and whether it still runs. With the offsets of the last answer, only new output."""
    info = await tasks.find(ctx, task_id)
    if wait and info.running:
        info = await _wait(ctx, info, stdout_offset, stderr_offset, wait, until)
    begin = [
        max(0, size - ctx.inline // 2) if offset is None else offset
        for offset, size in ((stdout_offset, info.stdout_size), (stderr_offset, info.stderr_size))
    ]
    task = await tasks.look(ctx, info, *begin)
    if (begin[0] and stdout_offset is None) or (begin[1] and stderr_offset is None):
        task = task.model_copy(update={"truncated": True})
    return ToolReply(tasks.tell(task), task)


@kit.tool("task_input", "Write to a task")
async def task_input(
    ctx: ToolContext,
    task_id: TaskId,
    text: Annotated[str, Field(description="What to write.")],
    press_enter: Annotated[bool, Field(description="Add a newline.")] = True,
    close: Annotated[bool, Field(description="Close its input afterwards, as Ctrl-D does.")] = False,
    wait: Annotated[float, Field(ge=0, le=600, description="Seconds to wait for its output.")] = 2,
) -> ToolReply[Task]:
    """Write to the standard input of a task that was started with keep_input_open. Answers with what it wrote then."""
    info = await tasks.find(ctx, task_id)
    try:
        await ctx.machine.write_stdin(task_id, (text + ("\n" if press_enter else "")).encode())
        if close:
            await ctx.machine.close_stdin(task_id)
    except errors.ProcessEnded:
        raise ToolFailed(
            f"Task {task_id} reads no input: it has ended, or was started without keep_input_open. "
            "Start it again with keep_input_open, or use shell_run and shell_send."
        ) from None
    now = await _wait(ctx, info, info.stdout_size, info.stderr_size, wait, "output") if wait else info
    task = await tasks.look(ctx, now, info.stdout_size, info.stderr_size)
    return ToolReply(tasks.tell(task), task)


class Stopped(BaseModel):
    task_id: str
    status: str
    exit_code: int | None
    forced: bool = Field(description="It did not end within the grace period and was killed.")


@kit.tool("task_stop", "Stop a task", destructive=True, idempotent=True)
async def task_stop(
    ctx: ToolContext,
    task_id: TaskId,
    signal: Annotated[Literal["INT", "TERM", "KILL"], Field(description="The first signal.")] = "TERM",
    grace: Annotated[float, Field(ge=0, le=60, description="Seconds before it is killed.")] = 5,
) -> ToolReply[Stopped]:
    """End a task with everything that it started: send a signal, and kill it after the grace period."""
    info = await tasks.find(ctx, task_id)
    forced = False
    if info.running:
        with suppress(errors.ProcessEnded):
            await ctx.machine.signal(task_id, getattr(signals, f"SIG{signal}"))
        info = await ctx.machine.wait(task_id, grace)
        if info.running:
            forced = True
            with suppress(errors.ProcessEnded):
                await ctx.machine.signal(task_id, signals.SIGKILL)
            info = await ctx.machine.wait(task_id, 30)
    data = Stopped(task_id=task_id, status=info.status.value, exit_code=info.exit_code, forced=forced)
    return ToolReply(
        f"Task {task_id}: {data.status}, exit code {data.exit_code}{', by force' if forced else ''}.", data
    )


class Listed(BaseModel):
    task_id: str
    status: str
    exit_code: int | None
    command: str
    started_at: float
    output: int = Field(description="Bytes written so far.")


class Tasks(BaseModel):
    tasks: list[Listed]
    total: int


@kit.tool("task_list", "List tasks", read_only=True, idempotent=True)
async def task_list(
    ctx: ToolContext,
    running_only: Annotated[bool, Field(description="Only running ones.")] = False,
) -> ToolReply[Tasks]:
    """The commands of this sandbox that run or ran, newest first: their ids, states and how much they wrote.

    Every process of the sandbox, however it was started, is in process_list.
    """
    found = [info for info in await ctx.machine.processes() if not info.label.startswith(running.LABEL)]
    found = [info for info in reversed(found) if info.running or not running_only]
    listed = [
        Listed(
            task_id=info.process_id,
            status=info.status.value,
            exit_code=info.exit_code,
            command=info.label,
            started_at=info.started_at,
            output=info.stdout_size + info.stderr_size,
        )
        for info in found[:_LISTED]
    ]
    lines = [f"{each.task_id}  {_state(each)}  {each.command.splitlines()[0][:120]}" for each in listed if each.command]
    return ToolReply("\n".join(lines) or "No tasks.", Tasks(tasks=listed, total=len(found)))


def _state(task: Listed) -> str:
    return task.status if task.exit_code is None else f"{task.status} (exit code {task.exit_code})"


async def _wait(
    ctx: ToolContext,
    info: ProcessInfo,
    stdout_offset: int | None,
    stderr_offset: int | None,
    seconds: float,
    until: str,
) -> ProcessInfo:
    if until == "end":
        return await running.wait(ctx, info, seconds, "Running")
    out = info.stdout_size if stdout_offset is None else stdout_offset
    err = info.stderr_size if stderr_offset is None else stderr_offset
    async with aclosing(running.output(ctx, info.process_id, out, seconds, err)) as chunks:
        async for chunk in chunks:
            if chunk is not None:
                break
            await ctx.progress("Nothing new yet.")
    return await ctx.machine.process(info.process_id)
