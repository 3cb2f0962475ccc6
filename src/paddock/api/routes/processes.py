"""Processes: start, list, read output, write input, signal, wait."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from fastapi import Query, Request, Response

from paddock.api.auth import Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import Offset, ProcessIdHere, SandboxIdHere, WaitQuery
from paddock.api.process_events import LastPosition, position, process_events
from paddock.api.shapes import output_answer, process_answer
from paddock.api.sse import EVENTS, EventStream
from paddock.models import (
    ProcessAnswer,
    ProcessList,
    ProcessOutput,
    SendSignal,
    StartProcess,
    Success,
    WriteStdin,
)

router = guarded_router("processes", "/sandboxes/{sandbox_id}/processes")

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events `output`… and at last `exit`.", "content": EVENTS}
}


@router.get("")
async def list_processes(sandbox_id: SandboxIdHere, caller: Calling) -> ProcessList:
    """All known processes, including ended ones; oldest first."""
    found = await caller.context.commands.list_processes(caller.who, sandbox_id)
    return ProcessList(processes=[process_answer(info) for info in found])


@router.post("")
async def start_process(body: StartProcess, sandbox_id: SandboxIdHere, caller: Calling) -> ProcessAnswer:
    """Start `command` (run by a shell) or `argv` (run directly) without waiting for it."""
    return process_answer(await caller.context.commands.start(caller.who, sandbox_id, body))


@router.get("/{process_id}")
async def get_process(sandbox_id: SandboxIdHere, process_id: ProcessIdHere, caller: Calling) -> ProcessAnswer:
    return process_answer(await caller.context.commands.info(caller.who, sandbox_id, process_id))


@router.get("/{process_id}/output")
async def read_output(
    sandbox_id: SandboxIdHere,
    process_id: ProcessIdHere,
    caller: Calling,
    stdout_offset: Offset = 0,
    stderr_offset: Offset = 0,
    wait: WaitQuery = 0,
    limit: Annotated[int | None, Query(ge=1, le=1 << 26, description="Bytes of each stream.")] = None,
) -> ProcessOutput:
    """Output from these offsets; with `wait`, waits up to that many seconds for new output."""
    output = await caller.context.commands.output(
        caller.who,
        sandbox_id,
        process_id,
        stdout_offset=stdout_offset,
        stderr_offset=stderr_offset,
        wait=wait,
        limit=limit,
    )
    return output_answer(output)


@router.get("/{process_id}/stream", response_model=None, responses=_EVENTS)
async def stream_process(
    request: Request,
    sandbox_id: SandboxIdHere,
    process_id: ProcessIdHere,
    caller: Calling,
    stdout_offset: Offset = 0,
    stderr_offset: Offset = 0,
    last_event_id: LastPosition = None,
) -> Response:
    """Follow a process from these offsets; `Last-Event-ID` takes precedence over them."""
    stdout_offset, stderr_offset = position(last_event_id, stdout_offset, stderr_offset)
    items = caller.context.commands.follow(
        caller.who, sandbox_id, process_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
    )
    return await EventStream.open(process_events(items, stdout_offset, stderr_offset), request)


@router.post("/{process_id}/stdin")
async def write_stdin(
    body: WriteStdin, sandbox_id: SandboxIdHere, process_id: ProcessIdHere, caller: Calling
) -> Success:
    """Write to a process that was started with `stdin` or on a terminal."""
    data = body.data.encode() + base64.b64decode(body.data_base64 or "")
    await caller.context.commands.write_stdin(caller.who, sandbox_id, process_id, data, body.close)
    return Success()


@router.post("/{process_id}/signal")
async def send_signal(
    body: SendSignal, sandbox_id: SandboxIdHere, process_id: ProcessIdHere, caller: Calling
) -> Success:
    """Signal the whole process group."""
    await caller.context.commands.signal(caller.who, sandbox_id, process_id, body.signal)
    return Success()


@router.post("/{process_id}/wait")
async def wait_process(
    sandbox_id: SandboxIdHere, process_id: ProcessIdHere, caller: Calling, timeout: WaitQuery | None = None
) -> ProcessAnswer:
    """The process when it has ended, or its state after `timeout` seconds."""
    return process_answer(await caller.context.commands.wait(caller.who, sandbox_id, process_id, timeout))
