"""Terminals: a shell on a PTY that keeps running when its clients disconnect.

The client's parameters are stored as the process's note, so every server lists terminals correctly, also after a
restart. A terminal that has ended is listed as inactive; a killed one is not listed.
"""

from __future__ import annotations

import base64
import binascii
import json
import signal
import uuid
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter, ValidationError

from paddock import errors
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import BASH, InsideHere, ToolboxContext, ToolboxRoute, serve_socket
from paddock.api.sockets import run_both
from paddock.clock import iso
from paddock.machine.base import ProcessInfo, ProcessStatus, TerminalSize
from paddock.models import Env, Text
from paddock.runtime.output import ProcessAttachment, gap_note

router = APIRouter(prefix="/{sandbox_id}/process/pty", route_class=ToolboxRoute)

_MARK = "daytona-pty "
_EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
_ENVS = "X-Daytona-Pty-Envs~"
_MAX_ID = 200
_TAKEN_AWAY = (ProcessStatus.KILLED, ProcessStatus.LOST)
_ENV: TypeAdapter[dict[str, str]] = TypeAdapter(Env)


class Size(DaytonaRequest):
    cols: int = Field(ge=1, le=1000)
    rows: int = Field(ge=1, le=1000)


class NewPty(DaytonaRequest):
    id: Text | None = None
    cols: int | None = Field(default=None, ge=1, le=1000)
    rows: int | None = Field(default=None, ge=1, le=1000)
    cwd: Text | None = None
    envs: Env | None = None
    lazy_start: bool | None = None


@dataclass(frozen=True, slots=True)
class Pty:
    pty_id: str
    process: ProcessInfo
    size: TerminalSize
    cwd: str
    envs: dict[str, str]

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.pty_id,
            "cwd": self.cwd,
            "envs": self.envs,
            "cols": self.size.cols,
            "rows": self.size.rows,
            "active": self.process.running,
            "lazyStart": False,
            "createdAt": iso(self.process.started_at),
        }


@router.post("")
async def create_pty(inside: InsideHere, body: NewPty) -> Response:
    pty = await _create(inside, body)
    return JSONResponse({"sessionId": pty.pty_id}, 201)


@router.get("")
async def list_ptys(inside: InsideHere) -> dict[str, Any]:
    return {"sessions": [(await _sized(inside, pty)).shown() for pty in await _every(inside)]}


@router.get("/{pty_id}")
async def get_pty(inside: InsideHere, pty_id: str) -> dict[str, Any]:
    return (await _sized(inside, await _get(inside, pty_id))).shown()


@router.post("/{pty_id}/resize")
async def resize_pty(inside: InsideHere, pty_id: str, body: Size) -> dict[str, Any]:
    pty = await _get(inside, pty_id)
    size = TerminalSize(body.rows, body.cols)
    try:
        await inside.machine.resize(pty.process.process_id, size)
    except errors.ProcessEnded:
        raise DaytonaError(410, f"PTY session {pty_id} has ended", "SESSION_ENDED", DAEMON) from None
    await inside.write(_size_file(inside, pty.process.process_id), f"{size.rows} {size.cols}".encode())
    return replace(pty, size=size).shown()


@router.delete("/{pty_id}")
async def kill_pty(inside: InsideHere, pty_id: str) -> dict[str, Any]:
    pty = await _get(inside, pty_id)
    with suppress(errors.ProcessEnded):
        await inside.machine.signal(pty.process.process_id, signal.SIGKILL)
        await inside.machine.wait(pty.process.process_id, 10)
    return {"message": "PTY session deleted"}


@router.websocket("/create-connect")
async def create_and_connect(websocket: WebSocket, sandbox_id: str) -> None:
    asked = websocket.query_params

    async def connect(inside: ToolboxContext) -> None:
        body = NewPty(
            id=asked.get("id"),
            cols=_number(asked.get("cols")),
            rows=_number(asked.get("rows")),
            cwd=asked.get("cwd"),
            envs=_envs(websocket),
        )
        await _converse(websocket, inside, await _create(inside, body))

    await serve_socket(websocket, sandbox_id, connect)


@router.websocket("/{pty_id}/connect")
async def connect_pty(websocket: WebSocket, sandbox_id: str, pty_id: str) -> None:
    async def connect(inside: ToolboxContext) -> None:
        await _converse(websocket, inside, await _get(inside, pty_id))

    await serve_socket(websocket, sandbox_id, connect)


async def _converse(websocket: WebSocket, inside: ToolboxContext, pty: Pty) -> None:
    """Send the output from the beginning, as far as it is stored, so that a returning client misses nothing."""
    offered = websocket.scope.get("subprotocols", ())
    told = _EXIT_CONTROL if _EXIT_CONTROL in offered else None
    await websocket.accept(told)
    await websocket.send_json({"type": "control", "status": "connected"})
    attachment = ProcessAttachment(inside.use, pty.process)

    async def outgoing() -> None:
        async with aclosing(attachment.follow()) as items:
            async for item in items:
                if not isinstance(item, ProcessInfo):
                    await websocket.send_bytes(gap_note(item) + item.data)
        how = _ending(attachment.info)
        if told:
            await websocket.send_json({"type": "control", "status": "exited", **how})
        await websocket.close(1000, json.dumps(how))

    async def incoming() -> None:
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            data = message.get("bytes") or (message.get("text") or "").encode()
            with suppress(errors.ProcessEnded):  # its exit message follows
                await attachment.write_stdin(data)

    try:
        await run_both(outgoing(), incoming())
    finally:
        await attachment.settle()


def _ending(info: ProcessInfo) -> dict[str, Any]:
    code = -1 if info.exit_code is None else info.exit_code
    return {"exitCode": code, "exitReason": "killed"} if info.status is ProcessStatus.KILLED else {"exitCode": code}


async def _create(inside: ToolboxContext, body: NewPty) -> Pty:
    pty_id = body.id or str(uuid.uuid4())
    if len(pty_id) > _MAX_ID or "\0" in pty_id:
        raise DaytonaError(400, f"a PTY session id has at most {_MAX_ID} characters", source=DAEMON)
    if any(pty.pty_id == pty_id and pty.process.running for pty in await _every(inside)):
        raise DaytonaError(409, f"PTY session {pty_id} already exists", "PTY_SESSION_ALREADY_EXISTS", DAEMON)
    size, envs = TerminalSize(body.rows or 24, body.cols or 80), body.envs or {}
    cwd = inside.resolve(body.cwd or "")
    kept = {"id": pty_id, "cols": size.cols, "rows": size.rows, "cwd": cwd, "envs": envs}
    spec = inside.spec(
        [BASH, "-l"],
        label=_MARK + pty_id,
        cwd=cwd,
        env={"TERM": "xterm-256color", **envs},
        terminal=size,
        stdin=True,
        note=json.dumps(kept).encode(),
    )
    return Pty(pty_id, await inside.machine.spawn(spec), size, cwd, envs)


async def _get(inside: ToolboxContext, pty_id: str) -> Pty:
    found = next((pty for pty in await _every(inside) if pty.pty_id == pty_id), None)
    if found is None:
        raise DaytonaError(404, f"PTY session {pty_id[:200]} not found", "PROCESS_NOT_FOUND", DAEMON)
    return found


async def _every(inside: ToolboxContext) -> list[Pty]:
    """The latest process of each id."""
    found: dict[str, Pty] = {}
    for process in await inside.machine.processes():
        if not process.label.startswith(_MARK) or process.status in _TAKEN_AWAY:
            continue
        try:
            kept = json.loads(await inside.machine.note(process.process_id))
            size = TerminalSize(int(kept["rows"]), int(kept["cols"]))
            envs = {str(name): str(value) for name, value in kept["envs"].items()}
            found[str(kept["id"])] = Pty(str(kept["id"]), process, size, str(kept["cwd"]), envs)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # another program's process with a similar label
    return list(found.values())


def _size_file(inside: ToolboxContext, process_id: str) -> str:
    """A file in the sandbox with the terminal's latest size."""
    return f"{inside.home}/.daytona/terminals/{process_id}"


async def _sized(inside: ToolboxContext, pty: Pty) -> Pty:
    said = (await inside.read(_size_file(inside, pty.process.process_id), 100) or b"").split()
    if len(said) != 2 or not all(word.isdigit() for word in said):
        return pty
    return replace(pty, size=TerminalSize(int(said[0]), int(said[1])))


def _envs(websocket: WebSocket) -> dict[str, str]:
    """Variables are sent as a WebSocket subprotocol, so that they appear in no log."""
    for offered in websocket.scope.get("subprotocols", ()):
        if offered.startswith(_ENVS):
            encoded = offered.removeprefix(_ENVS)
            try:
                found = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
                return _ENV.validate_python(found)
            except (binascii.Error, ValueError, ValidationError):
                raise DaytonaError(400, "the variables of the terminal are not valid", source=DAEMON) from None
    return {}


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 6:
        raise DaytonaError(400, "cols and rows are numbers from 1 to 1000", source=DAEMON)
    return int(text)
