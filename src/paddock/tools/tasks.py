"""Tasks: commands as a model sees them, while they run and when they have ended."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from paddock import errors
from paddock.machine.base import ProcessInfo, Stream
from paddock.tools import running
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import cut, keep
from paddock.tools.tool import ToolFailed

_MAX_READ_BYTES = 16 << 20
"""Maximum bytes of one stream that are read for one reply."""


class Task(BaseModel):
    task_id: str = Field(description="For task_output, task_input and task_stop.")
    status: Literal["running", "completed", "timed_out", "killed", "lost"]
    exit_code: int | None = Field(description="Null while it runs.")
    stdout: str
    stderr: str
    stdout_offset: int = Field(description="Where to continue.")
    stderr_offset: int
    stdout_skipped: int = Field(default=0, description="Bytes before stdout that are no longer stored.")
    stderr_skipped: int = Field(default=0, description="Bytes before stderr that are no longer stored.")
    truncated: bool = Field(description="More was written than this answer holds.")
    stdout_file: str | None = Field(default=None, description="File with all of it, if it was too long.")
    stderr_file: str | None = None
    duration: float | None = Field(description="Seconds, of one that has ended.")


async def find(ctx: ToolContext, task_id: str) -> ProcessInfo:
    try:
        return await ctx.machine.process(task_id)
    except errors.ProcessNotFound:
        raise ToolFailed(f"There is no task {task_id[:80]!r}. task_list shows those that there are.") from None


async def look(ctx: ToolContext, info: ProcessInfo, stdout_offset: int, stderr_offset: int) -> Task:
    """Output from these offsets on, as much as a reply may hold."""
    out = await running.read(ctx, info, Stream.STDOUT, stdout_offset, _MAX_READ_BYTES)
    err = await running.read(ctx, info, Stream.STDERR, stderr_offset, _MAX_READ_BYTES)
    stdout, out_end = await running.whole_characters(out, not info.running)
    stderr, err_end = await running.whole_characters(err, not info.running)
    err_room = max(ctx.inline // 3, ctx.inline - len(stdout))
    out_room = max(ctx.inline - len(stderr), ctx.inline - err_room)
    fits = len(stdout) <= out_room and len(stderr) <= err_room
    files: dict[Stream, str] = {}
    for stream, text, room in ((Stream.STDOUT, stdout, out_room), (Stream.STDERR, stderr, err_room)):
        if len(text) > room:
            files[stream] = await keep(ctx, text, f"{info.process_id}-{stream}")
    return Task(
        task_id=info.process_id,
        status=info.status.value,
        exit_code=info.exit_code,
        stdout=_cut(stdout, out_room, files.get(Stream.STDOUT)),
        stderr=_cut(stderr, err_room, files.get(Stream.STDERR)),
        stdout_offset=out_end,
        stderr_offset=err_end,
        stdout_skipped=out.skipped,
        stderr_skipped=err.skipped,
        truncated=bool(out.skipped or err.skipped) or not fits,
        stdout_file=files.get(Stream.STDOUT),
        stderr_file=files.get(Stream.STDERR),
        duration=None if info.ended_at is None else round(max(0.0, info.ended_at - info.started_at), 3),
    )


def tell(task: Task) -> str:
    """As text for a model: output, errors, and how it ended or how to continue."""
    parts = [
        f"[{skipped} bytes of {name} before this are kept no more; write that much to a file]"
        for name, skipped in (("stdout", task.stdout_skipped), ("stderr", task.stderr_skipped))
        if skipped
    ]
    if task.stdout.strip():
        parts.append(task.stdout.rstrip("\n"))
    if task.stderr.strip():
        parts.append(f"[stderr]\n{task.stderr.rstrip(chr(10))}")
    return "\n".join([*(parts or ["(no output)"]), _ending(task)])


def _ending(task: Task) -> str:
    match task.status:
        case "running":
            return (
                f"[still running as task {task.task_id}: read on with task_output "
                f"(stdout_offset={task.stdout_offset}, stderr_offset={task.stderr_offset}), end it with task_stop]"
            )
        case "completed":
            return f"[exit code {task.exit_code}]"
        case "timed_out":
            return "[ended by its hard timeout]"
        case "lost":
            return "[lost: the sandbox was restarted under it]"
    return f"[ended by a signal, exit code {task.exit_code}]"


def _cut(text: str, room: int, file: str | None) -> str:
    return text if file is None else cut(text, room, f"the whole is in {file}: read it with read_file")
