"""Routes of sessions: create, run, read, write input, delete. Logs can be followed over a WebSocket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from paddock.accounts.byte_budget import SMALL
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox import sessions
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute, serve_socket
from paddock.api.compat.daytona.toolbox.output import MAX_OUTPUT
from paddock.api.compat.daytona.toolbox.sessions import Command, ShellSession
from paddock.api.file_content import json_items
from paddock.api.sockets import run_both
from paddock.machine.base import OutputChunk, Stream
from paddock.models import Text

router = APIRouter(prefix="/{sandbox_id}/process/session", route_class=ToolboxRoute)

ENTRYPOINT = "entrypoint"
_COPIES_OF_LOGS = 6
"""Copies in memory of two streams: as received, and twice in the answer."""
_COPIES_OF_LIST = 2
_PREFIXES = {Stream.STDOUT: b"\x01\x01\x01", Stream.STDERR: b"\x02\x02\x02"}


class NewSession(DaytonaRequest):
    session_id: Text


class Run(DaytonaRequest):
    command: Text
    run_async: bool | None = None
    as_before: bool | None = Field(default=None, alias="async")
    """The field's name in older clients."""
    suppress_input_echo: bool | None = None


class Input(DaytonaRequest):
    data: Text


@router.post("")
async def create_session(inside: InsideHere, body: NewSession) -> Response:
    await sessions.create(inside, body.session_id)
    return Response(status_code=201)


@router.get("")
async def list_sessions(inside: InsideHere) -> Response:
    """Memory is reserved while they are read."""
    found: list[bytes] = []
    for session in await sessions.every(inside):
        found.append(await _shown(inside, session))
        inside.caller.holding.reserve(_COPIES_OF_LIST * sum(map(len, found)))
    return _json(b"[%b]" % b",".join(found))


@router.get(f"/{ENTRYPOINT}")
async def entrypoint(inside: InsideHere) -> dict[str, Any]:
    """Always empty: templates have no entry point."""
    return {"sessionId": ENTRYPOINT, "commands": []}


@router.get(f"/{ENTRYPOINT}/logs")
async def entrypoint_logs(inside: InsideHere) -> Response:
    return _json(b"{%b}" % await sessions.Logs(b"", b"").fields())


@router.get("/{session_id}")
async def get_session(inside: InsideHere, session_id: str) -> Response:
    return _json(await _shown(inside, await sessions.get(inside, session_id)))


@router.delete("/{session_id}")
async def delete_session(inside: InsideHere, session_id: str) -> Response:
    await (await sessions.get(inside, session_id)).delete()
    return Response(status_code=204)


@router.post("/{session_id}/exec")
async def execute(inside: InsideHere, session_id: str, body: Run) -> Response:
    session = await sessions.get(inside, session_id)
    if not body.command.strip() or "\0" in body.command:
        raise DaytonaError(400, "command must not be empty, nor hold a NUL character", source=DAEMON)
    wait = not (body.run_async or body.as_before)
    command_id = await session.run(body.command, wait=wait, quiet=bool(body.suppress_input_echo))
    data = {"command": body.command[:1000], "session_id": session_id}
    await inside.use.record(commands=1, event=("command.started", data))
    if not wait:
        return JSONResponse({"cmdId": command_id}, 202)
    command = await session.command(command_id)
    # The command has run, so its result must be returned: if there is no memory for all output, the rest is in its
    # logs.
    room = inside.caller.holding.try_reserve(_COPIES_OF_LOGS * MAX_OUTPUT)
    logs = await (session.logs(command_id) if room else session.logs(command_id, SMALL // 2))
    about = json.dumps({"cmdId": command_id, "exitCode": command.exit_code}).encode()
    answer = b"%b,%b}" % (about[:-1], await logs.fields())
    inside.caller.holding.extend(len(answer))
    return _json(answer)


@router.get("/{session_id}/command/{command_id}")
async def get_command(inside: InsideHere, session_id: str, command_id: str) -> dict[str, Any]:
    return (await (await sessions.get(inside, session_id)).command(command_id)).shown()


@router.get("/{session_id}/command/{command_id}/logs")
async def get_logs(inside: InsideHere, session_id: str, command_id: str, follow: bool = False) -> Response:
    session = await sessions.get(inside, session_id)
    if not follow:
        inside.caller.holding.reserve(_COPIES_OF_LOGS * MAX_OUTPUT)
        return _json(b"{%b}" % await (await session.logs(command_id)).fields())
    await session.command(command_id)
    return StreamingResponse(_marked(session, command_id), media_type="application/octet-stream")


@router.post("/{session_id}/command/{command_id}/input")
async def send_input(inside: InsideHere, session_id: str, command_id: str, body: Input) -> Response:
    await (await sessions.get(inside, session_id)).send(command_id, body.data)
    return Response(status_code=204)


@router.websocket(f"/{ENTRYPOINT}/logs")
async def follow_entrypoint(websocket: WebSocket, sandbox_id: str) -> None:
    async def nothing(inside: ToolboxContext) -> None:
        await websocket.accept()
        await websocket.close(1000)

    await serve_socket(websocket, sandbox_id, nothing)


@router.websocket("/{session_id}/command/{command_id}/logs")
async def follow_logs(websocket: WebSocket, sandbox_id: str, session_id: str, command_id: str) -> None:
    """Binary frames, each with a prefix for its stream; closed when the command has ended."""

    async def follow(inside: ToolboxContext) -> None:
        session = await sessions.get(inside, session_id)
        await session.command(command_id)
        await websocket.accept()

        async def outgoing() -> None:
            async for piece in _marked(session, command_id):
                await websocket.send_bytes(piece)
            await websocket.close(1000)

        await run_both(outgoing(), _until_left(websocket))

    await serve_socket(websocket, sandbox_id, follow)


async def _marked(session: ShellSession, command_id: str) -> AsyncIterator[bytes]:
    async with aclosing(session.follow(command_id)) as chunks:
        async for chunk in chunks:
            yield _with_mark(chunk)


def _with_mark(chunk: OutputChunk) -> bytes:
    return _PREFIXES[chunk.stream] + chunk.data


async def _until_left(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _shown(inside: ToolboxContext, session: ShellSession) -> bytes:
    commands = await json_items(await session.commands(), Command.shown, inside.caller.holding)
    return b'{"sessionId":%b,"commands":[%b]}' % (json.dumps(session.session_id).encode(), commands)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
