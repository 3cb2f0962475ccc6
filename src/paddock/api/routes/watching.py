"""Events, usage and metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response

from paddock import errors
from paddock.api.auth import Authenticated, Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import Day, Limit, SandboxIdHere
from paddock.api.shapes import event_answer, metrics_answer, usage_answer
from paddock.api.sse import EVENTS, READY, EventStream, ServerSentEvent
from paddock.models import EventPage, MetricsAnswer, UsageAnswer, UserId

router = guarded_router("watching")

After = Annotated[int, Query(ge=0, le=2**53, description="The `seq` of the last event seen.")]
LastEvent = Annotated[
    str | None,
    Header(alias="Last-Event-ID", json_schema_extra={"pattern": r"^\d{1,15}$"}, description="Wins over `after`."),
]
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events named by their type; the id is `seq`.", "content": EVENTS}
}


@router.get("/sandboxes/{sandbox_id}/events")
async def list_events(sandbox_id: SandboxIdHere, caller: Calling, after: After = 0, limit: Limit = 100) -> EventPage:
    """The events of a sandbox, oldest first."""
    events = await caller.context.events.page(caller.who, sandbox_id, after, limit)
    return EventPage(events=[event_answer(event) for event in events], next_after=events[-1].seq if events else after)


@router.get("/sandboxes/{sandbox_id}/events/stream", response_model=None, responses=_EVENTS)
async def stream_events(
    request: Request,
    sandbox_id: SandboxIdHere,
    caller: Calling,
    after: After = 0,
    last_event_id: LastEvent = None,
) -> Response:
    """Stream the events as they happen, until the sandbox is deleted."""
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 16):
            raise errors.Invalid("Last-Event-ID must be the number of an event.")
        after = int(last_event_id)
    return await EventStream.open(_events(caller, sandbox_id, after), request)


@router.get("/sandboxes/{sandbox_id}/usage")
async def sandbox_usage(sandbox_id: SandboxIdHere, caller: Calling) -> UsageAnswer:
    """Running seconds, commands and bytes of one sandbox, in total and by day."""
    return usage_answer(*await caller.context.usage.of_sandbox(caller.who, sandbox_id))


@router.get("/sandboxes/{sandbox_id}/metrics")
async def sandbox_metrics(sandbox_id: SandboxIdHere, caller: Calling) -> MetricsAnswer:
    """Current resource usage. Does not resume the sandbox: a paused one is a 409."""
    machine = await caller.context.controller.peek(caller.who, sandbox_id)
    return metrics_answer(await machine.stats())


@router.get("/usage")
async def usage(
    caller: Calling,
    user_id: Annotated[UserId | None, Query()] = None,
    since: Day | None = None,
    until: Day | None = None,
) -> UsageAnswer:
    """Usage by user and day: your own, or as an admin that of any user."""
    return usage_answer(*await caller.context.usage.of_users(caller.who, user_id=user_id, since=since, until=until))


async def _events(caller: Authenticated, sandbox_id: str, after: int) -> AsyncGenerator[ServerSentEvent, None]:
    stream = caller.context.events.stream(caller.who, sandbox_id, after)
    begun = False
    try:
        async for event in stream:
            if event is not None:
                yield ServerSentEvent(event.type, event_answer(event), str(event.seq))
            elif not begun:
                yield READY
            begun = True
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
