"""Running a command."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from paddock.api.auth import Authenticated, Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import IdempotencyKey
from paddock.api.process_events import process_events
from paddock.api.sse import EVENTS, EventStream
from paddock.models import CommandResult, RunCommand

router = guarded_router("commands")

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result; with `stream` the events `started`, `output`… and `exit`.",
        "content": EVENTS,
    }
}


@router.post("/sandboxes/run-command", response_model=CommandResult, responses=_STREAMED)
async def run_command(
    body: RunCommand, request: Request, caller: Calling, idempotency_key: IdempotencyKey = None
) -> Response:
    """Run a command in a shell. A failing command is an answer: see `exit_code`.

    After the soft `timeout` the answer is `running` and the command continues; read on by `process_id` and offset.
    Request `stream` (or `Accept: text/event-stream`) to receive output while it runs; then there is no soft timeout
    unless one is given. The command continues if the caller disconnects.
    """
    if not body.background and (body.stream or wants_events(request)):
        events = process_events(caller.context.commands.stream_run(caller.who, body, idempotency_key), announce=True)
        return await EventStream.open(events, request)
    return await answer_command(body, caller, idempotency_key)


async def answer_command(body: RunCommand, caller: Authenticated, idempotency_key: str | None) -> Response:
    """The result when the command has ended, or at the soft timeout."""
    result = await caller.context.commands.run(caller.who, body, idempotency_key, caller.holding)
    # Serialized here: FastAPI would validate the model again, which costs as much as serializing it.
    return Response(result.model_dump_json(), media_type="application/json")


def wants_events(request: Request) -> bool:
    return request.headers.get("accept", "").startswith("text/event-stream")
