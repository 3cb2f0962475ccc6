"""Running code, and its stateful contexts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Path, Request, Response

from paddock.api.auth import Calling
from paddock.api.disconnects import until_disconnect
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.api.sse import EVENTS, READY, EventStream, ServerSentEvent
from paddock.errors import CodeContextNotFound
from paddock.models import (
    CodeContext,
    CodeContextList,
    CodeError,
    CodeResult,
    CodeValue,
    CreateCodeContext,
    RunCode,
    Success,
)
from paddock.models.code import is_context_id
from paddock.runtime.code import CodeOutput, CodeStarted, CodeTimedOut, Happening

router = guarded_router("code")
contexts = guarded_router("code", "/sandboxes/{sandbox_id}/code-contexts")

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result; with `stream` the events `started`, `output`…, `result`…, `exception` and `end`.",
        "content": EVENTS,
    }
}
ContextIdHere = Annotated[str, Path(examples=["5c1d7a52-6f9e-4e0f-9d52-0f8f2a1f7d3b"])]


@router.post("/sandboxes/run-code", response_model=CodeResult, responses=_STREAMED)
async def run_code(body: RunCode, request: Request, caller: Calling) -> Response:
    """Run code in a context that keeps earlier definitions. Failing code is an answer: see `error`.

    Without a `context_id` it runs in the default context of its `language`. A context runs one execution at a time;
    others wait. After `timeout` (default: as for commands), or when the caller disconnects, the code is interrupted,
    and the answer has its output so far. Request `stream` (or `Accept: text/event-stream`) to receive output while it
    runs.
    """
    code = caller.context.code
    if body.stream or request.headers.get("accept", "").startswith("text/event-stream"):
        return await EventStream.open(_events(code.stream(caller.who, body)), request)
    result = await until_disconnect(request, code.run(caller.who, body))
    return Response(result.model_dump_json(), media_type="application/json")


@contexts.get("")
async def list_code_contexts(sandbox_id: SandboxIdHere, caller: Calling) -> CodeContextList:
    """In order of creation, the default contexts first."""
    return CodeContextList(contexts=await caller.context.code.contexts(caller.who, sandbox_id))


@contexts.post("")
async def create_code_context(body: CreateCodeContext, sandbox_id: SandboxIdHere, caller: Calling) -> CodeContext:
    """Create a context with its own variables, directory and execution queue."""
    return await caller.context.code.create_context(caller.who, sandbox_id, body)


@contexts.delete("/{context_id}")
async def delete_code_context(sandbox_id: SandboxIdHere, context_id: ContextIdHere, caller: Calling) -> Success:
    await caller.context.code.remove_context(caller.who, sandbox_id, _checked(context_id))
    return Success()


@contexts.post("/{context_id}/restart")
async def restart_code_context(sandbox_id: SandboxIdHere, context_id: ContextIdHere, caller: Calling) -> Success:
    """Delete all definitions of the context. Running code ends."""
    await caller.context.code.restart_context(caller.who, sandbox_id, _checked(context_id))
    return Success()


def _checked(context_id: str) -> str:
    if not is_context_id(context_id):
        raise CodeContextNotFound(f"Context {context_id[:80]} not found")
    return context_id


async def _events(happenings: AsyncGenerator[Happening, None]) -> AsyncGenerator[ServerSentEvent, None]:
    status = "completed"
    async with aclosing(happenings):
        yield READY
        async for happening in happenings:
            match happening:
                case CodeStarted(count):
                    yield ServerSentEvent("started", {"execution_count": count})
                case CodeOutput(stream, text):
                    yield ServerSentEvent("output", {"stream": stream, "data": text})
                case CodeValue():
                    yield ServerSentEvent("result", happening)
                case CodeError():
                    status = "timed_out" if isinstance(happening, CodeTimedOut) else "failed"
                    yield ServerSentEvent("exception", happening)
    yield ServerSentEvent("end", {"status": status})
