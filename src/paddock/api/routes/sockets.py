"""WebSockets of a process (input and output) and of a terminal. Disconnecting does not end the process."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket

from paddock import errors, ids
from paddock.api.auth import SocketCalling
from paddock.api.frames import (
    CloseStdin,
    Resize,
    Signal,
    Stdin,
    error_frame,
    exit_frame,
    gap_frame,
    output_frame,
    read_frame,
)
from paddock.api.params import Offset, check_process_id
from paddock.api.sockets import run_both
from paddock.machine.base import ProcessInfo
from paddock.models import Command, SandboxPath, StartProcess, Terminal, UserName
from paddock.runtime.output import ProcessAttachment

router = APIRouter()

_LOGIN_SHELL = ["/bin/bash", "-l"]
Size = Annotated[int, Query(ge=1, le=1000)]


@router.websocket("/sandboxes/{sandbox_id}/processes/{process_id}/ws")
async def process_socket(
    websocket: WebSocket,
    sandbox_id: str,
    process_id: str,
    caller: SocketCalling,
    stdout_offset: Offset = 0,
    stderr_offset: Offset = 0,
) -> None:
    """Output frames from these offsets; the client sends input, signals and sizes as frames."""
    _check_sandbox_id(sandbox_id)
    check_process_id(process_id)

    async def outgoing(attachment: ProcessAttachment) -> None:
        async with aclosing(attachment.follow(stdout_offset, stderr_offset)) as items:
            async for item in items:
                if isinstance(item, ProcessInfo):
                    await websocket.send_json(exit_frame(item))
                else:
                    await websocket.send_json(output_frame(item))

    async with caller.context.commands.attach(caller.who, sandbox_id, process_id) as attachment:
        await websocket.accept()
        await run_both(outgoing(attachment), _incoming(websocket, attachment))
    await _close(websocket)


@router.websocket("/sandboxes/{sandbox_id}/terminal")
async def terminal_socket(
    websocket: WebSocket,
    sandbox_id: str,
    caller: SocketCalling,
    rows: Size = 24,
    cols: Size = 80,
    command: Annotated[Command | None, Query()] = None,
    cwd: Annotated[SandboxPath | None, Query()] = None,
    user: Annotated[UserName | None, Query()] = None,
    process_id: str | None = None,
    offset: Offset = 0,
) -> None:
    """A shell on a PTY: binary frames are its bytes. `process_id` attaches to a running one, from `offset`."""
    _check_sandbox_id(sandbox_id)
    if process_id is None:
        shell = StartProcess(
            command=command,
            argv=None if command else _LOGIN_SHELL,
            cwd=cwd,
            env={"TERM": "xterm-256color"},
            user=user,
            terminal=Terminal(rows=rows, cols=cols),
        )
        process_id = (await caller.context.commands.start(caller.who, sandbox_id, shell)).process_id
    check_process_id(process_id)

    async def outgoing(attachment: ProcessAttachment) -> None:
        async with aclosing(attachment.follow(offset)) as items:
            async for item in items:
                if isinstance(item, ProcessInfo):
                    await websocket.send_json(exit_frame(item))
                    continue
                if item.skipped:
                    await websocket.send_json(gap_frame(item))
                await websocket.send_bytes(item.data)

    async with caller.context.commands.attach(caller.who, sandbox_id, process_id) as attachment:
        await websocket.accept()
        await websocket.send_json({"type": "ready", "process_id": process_id})
        await run_both(outgoing(attachment), _incoming(websocket, attachment))
    await _close(websocket)


async def _incoming(websocket: WebSocket, attachment: ProcessAttachment) -> None:
    """The client's messages until it disconnects."""
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        try:
            await _act(message, attachment)
        except errors.Invalid:
            raise
        except errors.PaddockError as error:
            # For example input for a process that has just ended: its exit frame follows.
            await websocket.send_json(error_frame(error))


async def _act(message: Any, attachment: ProcessAttachment) -> None:
    if message.get("bytes") is not None:
        await attachment.write_stdin(message["bytes"])
        return
    match read_frame(message.get("text") or ""):
        case Stdin(data=data):
            await attachment.write_stdin(base64.b64decode(data))
        case CloseStdin():
            await attachment.write_stdin(b"", close=True)
        case Signal(signal=name):
            await attachment.signal(name)
        case Resize(rows=rows, cols=cols):
            await attachment.resize(rows, cols)


def _check_sandbox_id(sandbox_id: str) -> None:
    if not ids.is_sandbox_id(sandbox_id):
        raise errors.SandboxNotFound.by_id(sandbox_id[:200])


async def _close(websocket: WebSocket) -> None:
    if websocket.client_state.name == "CONNECTED":
        await websocket.close()
