"""The code interpreter: stateful contexts, and code run in them over a WebSocket."""

from __future__ import annotations

import json
from contextlib import aclosing, suppress
from typing import Any

from fastapi import APIRouter, WebSocket
from pydantic import Field

from paddock import errors, json_limits
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute, serve_socket
from paddock.api.sockets import receive_text, run_both
from paddock.clock import iso
from paddock.models import CodeContext, CodeError, CreateCodeContext, Env, RunCode, Text
from paddock.models.code import is_context_id
from paddock.runtime.code import CodeOutput, CodeTimedOut

router = APIRouter(prefix="/{sandbox_id}/process/interpreter", route_class=ToolboxRoute)

TIMED_OUT = 4008
_DEFAULT_SECONDS = 600.0
_MAX_TIMEOUT_S = 86_400.0
_LANGUAGE = "python"


class NewContext(DaytonaRequest):
    cwd: Text | None = None
    language: Text | None = None


class ExecuteInContext(DaytonaRequest):
    code: Text
    context_id: Text | None = None
    envs: Env = Field(default_factory=dict)
    timeout: float | None = None


@router.post("/context")
async def create_context(inside: InsideHere, body: NewContext | None = None) -> dict[str, Any]:
    body = body or NewContext()
    if (body.language or _LANGUAGE) != _LANGUAGE:
        raise DaytonaError(400, f"unsupported language {str(body.language)[:50]!r}: python only", source=DAEMON)
    asked = CreateCodeContext(language=_LANGUAGE, cwd=inside.resolve(body.cwd or ""))
    server_context, who = inside.caller.context, inside.caller.who
    context = await server_context.code.create_context(who, inside.sandbox.sandbox_id, asked)
    made_at = iso(server_context.clock.now())
    await inside.write(_mark(inside, context.context_id), made_at.encode())
    return _shown(context, made_at)


@router.get("/context")
async def list_contexts(inside: InsideHere) -> dict[str, Any]:
    """Only contexts created through this API: not the default ones, and not those of other clients."""
    server_context, who = inside.caller.context, inside.caller.who
    found = []
    for context in await server_context.code.contexts(who, inside.sandbox.sandbox_id):
        made_at = await inside.read(_mark(inside, context.context_id), 100)
        if made_at is not None:
            found.append(_shown(context, made_at.decode(errors="replace")))
    return {"contexts": found}


@router.delete("/context/{context_id}")
async def delete_context(inside: InsideHere, context_id: str) -> dict[str, Any]:
    server_context, who = inside.caller.context, inside.caller.who
    if not is_context_id(context_id):
        raise DaytonaError(404, f"context {context_id[:100]} not found", source=DAEMON)
    await server_context.code.remove_context(who, inside.sandbox.sandbox_id, context_id)
    with suppress(errors.PathNotFound):
        await inside.machine.remove(_mark(inside, context_id), user=inside.user)
    return {"message": "Context deleted successfully"}


@router.websocket("/execute")
async def execute(websocket: WebSocket, sandbox_id: str) -> None:
    """The first message contains the code; output and errors are sent as messages; then the connection is closed."""

    async def run(inside: ToolboxContext) -> None:
        await websocket.accept()
        try:
            text = await receive_text(websocket)
            json_limits.check(text.encode(errors="replace"))
            asked = ExecuteInContext.model_validate_json(text)
            request = RunCode(
                sandbox_id=inside.sandbox.sandbox_id,
                code=asked.code,
                context_id=asked.context_id or None,
                language=None if asked.context_id else _LANGUAGE,
                timeout=_seconds(asked.timeout),
                env={**inside.kept.env, **asked.envs},
            )
        except (ValueError, errors.Invalid):
            await websocket.close(1008, "the request is not valid: code, contextId, envs, timeout")
            return
        await run_both(_run(websocket, inside, request), _until_left(websocket))

    await serve_socket(websocket, sandbox_id, run)


async def _run(websocket: WebSocket, inside: ToolboxContext, request: RunCode) -> None:
    late = False
    try:
        async with aclosing(inside.caller.context.code.stream(inside.caller.who, request)) as happenings:
            async for happening in happenings:
                late |= isinstance(happening, CodeTimedOut)
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
        case CodeOutput(stream, text):
            return {"type": stream, "text": text}
        case CodeTimedOut():
            return None
        case CodeError():
            return {
                "type": "error",
                "name": happening.name,
                "value": happening.value,
                "traceback": happening.traceback,
            }
    return None


def _seconds(timeout: float | None) -> float:
    """0 means no limit, which is the longest possible timeout."""
    if timeout is None:
        return _DEFAULT_SECONDS
    return _MAX_TIMEOUT_S if timeout <= 0 else min(timeout, _MAX_TIMEOUT_S)


async def _until_left(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _mark(inside: ToolboxContext, context_id: str) -> str:
    """A file in the sandbox that records a context created through this API and its time, which survives restarts."""
    return f"{inside.home}/.daytona/contexts/{context_id}"


def _shown(context: CodeContext, made_at: str) -> dict[str, Any]:
    return {
        "id": context.context_id,
        "cwd": context.cwd,
        "language": context.language,
        "active": True,
        "createdAt": made_at,
    }
