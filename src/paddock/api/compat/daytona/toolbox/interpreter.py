"""The code interpreter: contexts that remember, and code that is run in them over a WebSocket."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, WebSocket
from pydantic import Field

from paddock import errors
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import Inside, InsideHere, ToolboxRoute, serve_socket
from paddock.api.sockets import converse
from paddock.clock import iso
from paddock.lifecycle.code import Printed, TimedOut
from paddock.models import CodeContext, CodeError, CreateCodeContext, Env, RunCode, Text

router = APIRouter(prefix="/{sandbox_id}/process/interpreter", route_class=ToolboxRoute)

TIMED_OUT = 4008
_DEFAULT_SECONDS = 600.0
_LONGEST_SECONDS = 86_400.0
_LANGUAGE = "python"


class NewContext(DaytonaRequest):
    cwd: Text | None = None
    language: Text | None = None


class Execute(DaytonaRequest):
    code: Text
    context_id: Text | None = None
    envs: Env = Field(default_factory=dict)
    timeout: float | None = None


@router.post("/context")
async def create_context(inside: InsideHere, request: Request, body: NewContext | None = None) -> dict[str, Any]:
    body = body or NewContext()
    if (body.language or _LANGUAGE) != _LANGUAGE:
        raise DaytonaError(400, f"unsupported language {str(body.language)[:50]!r}: python only", source=DAEMON)
    asked = CreateCodeContext(language=_LANGUAGE, cwd=inside.resolve(body.cwd or ""))
    house, who = inside.caller.house, inside.caller.who
    context = await house.code.create_context(who, inside.sandbox.sandbox_id, asked)
    _made_at(request)[context.context_id] = house.clock.now()
    return _shown(inside, request, context)


@router.get("/context")
async def list_contexts(inside: InsideHere, request: Request) -> dict[str, Any]:
    """Those that somebody made. The first of each language is the default one, which is there by itself."""
    house, who = inside.caller.house, inside.caller.who
    found, seen = [], set()
    for context in await house.code.contexts(who, inside.sandbox.sandbox_id):
        if context.language in seen:
            found.append(_shown(inside, request, context))
        seen.add(context.language)
    return {"contexts": found}


@router.delete("/context/{context_id}")
async def delete_context(inside: InsideHere, context_id: str) -> dict[str, Any]:
    house, who = inside.caller.house, inside.caller.who
    await house.code.remove_context(who, inside.sandbox.sandbox_id, context_id)
    return {"message": "Context deleted successfully"}


@router.websocket("/execute")
async def execute(websocket: WebSocket, sandbox_id: str) -> None:
    """One message says what to run; what it prints, and how it fails, comes as messages; then the connection ends."""

    async def run(inside: Inside) -> None:
        await websocket.accept()
        try:
            asked = Execute.model_validate_json(await websocket.receive_text())
            request = RunCode(
                sandbox_id=inside.sandbox.sandbox_id,
                code=asked.code,
                context_id=asked.context_id or None,
                language=None if asked.context_id else _LANGUAGE,
                timeout=_seconds(asked.timeout),
                env={**inside.kept.env, **asked.envs},
            )
        except ValueError:
            await websocket.close(1008, "the request is not valid: code, contextId, envs, timeout")
            return
        await converse(_run(websocket, inside, request), _until_left(websocket))

    await serve_socket(websocket, sandbox_id, run)


async def _run(websocket: WebSocket, inside: Inside, request: RunCode) -> None:
    late = False
    try:
        async with aclosing(inside.caller.house.code.stream(inside.caller.who, request)) as happenings:
            async for happening in happenings:
                late |= isinstance(happening, TimedOut)
                if (message := _message(happening)) is not None:
                    await websocket.send_text(json.dumps(message))
    except (errors.CodeContextNotFound, errors.InterpreterMissing, errors.InterpreterFailed) as problem:
        await websocket.close(1008, problem.message.encode()[:120].decode(errors="ignore"))
        return
    if late:
        await websocket.close(TIMED_OUT, "Execution timed out")
        return
    await websocket.send_text(json.dumps({"type": "control", "text": "completed"}))
    await websocket.close(1000)


def _message(happening: Any) -> dict[str, str] | None:
    match happening:
        case Printed(stream, text):
            return {"type": stream, "text": text}
        case TimedOut():
            return None
        case CodeError():
            trace = happening.traceback
            text = trace if isinstance(trace, str) else "\n".join(trace)
            return {"type": "error", "name": happening.name, "value": happening.value, "traceback": text}
    return None


def _seconds(timeout: float | None) -> float:
    """0 is no limit, which comes to the longest there is."""
    if timeout is None:
        return _DEFAULT_SECONDS
    return _LONGEST_SECONDS if timeout <= 0 else min(timeout, _LONGEST_SECONDS)


async def _until_left(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _made_at(request: Request) -> dict[str, float]:
    known: dict[str, float] = request.app.state.contexts_made
    if len(known) > 10_000:
        known.clear()
    return known


def _shown(inside: Inside, request: Request, context: CodeContext) -> dict[str, Any]:
    """When it was made is known to the server that made it; otherwise it is at least as old as this start."""
    made_at = _made_at(request).get(context.context_id, inside.sandbox.started_at or 0)
    return {
        "id": context.context_id,
        "cwd": context.cwd,
        "language": context.language,
        "active": True,
        "createdAt": iso(made_at),
    }
