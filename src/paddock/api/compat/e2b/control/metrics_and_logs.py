"""A sandbox's resource usage and events, as E2B's metrics and logs."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request

from paddock import errors
from paddock.api.auth import Calling
from paddock.api.compat.e2b.control.route import E2BRoute, SandboxHere
from paddock.api.compat.e2b.control.shapes import level_of, log_entry, log_line, metric
from paddock.api.compat.e2b.errors import E2BError, sandbox_not_found
from paddock.gateway.asgi_extensions import asked
from paddock.models import State

router = APIRouter(route_class=E2BRoute)

_MOST_IDS = 100
_MAX_LOGS = 1000
_LEVELS = ("debug", "info", "warn", "error")
_END_OF_TIME = 253_402_300_799
"""The last second that a timestamp can be written for."""

Moment = Annotated[int | None, Query(ge=0, le=_END_OF_TIME)]
Milliseconds = Annotated[int | None, Query(ge=0, le=_END_OF_TIME * 1000)]
Limit = Annotated[int, Query(ge=0, le=_MAX_LOGS)]
Level = Annotated[Literal["debug", "info", "warn", "error"] | None, Query()]


@router.get("/sandboxes/metrics")
async def latest_metrics(
    request: Request, caller: Calling, sandbox_ids: Annotated[str, Query(max_length=5000)]
) -> dict[str, Any]:
    """The latest of each; those that are not there, or not the caller's, are left out, and so are those of other nodes
    whose server does not answer."""
    ids = [one.partition("-")[0] for one in sandbox_ids.split(",") if one]
    if len(ids) > _MOST_IDS:
        raise E2BError(400, f"at most {_MOST_IDS} sandbox IDs can be asked for at once")
    found: dict[str, Any] = {}
    elsewhere: dict[str, list[str]] = {}
    for key in ids:
        try:
            sandbox = await caller.context.controller.by_key(key)
        except errors.SandboxNotFound:
            continue
        if not (caller.who.is_admin or sandbox.owner_id == caller.who.user_id) or sandbox.state is not State.RUNNING:
            continue
        if not caller.context.nodes.here(sandbox):
            elsewhere.setdefault(sandbox.node_id or "", []).append(key)
            continue
        sample = await caller.context.usage_sampler.latest(sandbox)
        if sample is not None:
            found[key] = metric(sandbox, sample)
    for more in await asyncio.gather(*(_latest_of(request, node_id, keys) for node_id, keys in elsewhere.items())):
        found |= more
    return {"sandboxes": found}


async def _latest_of(request: Request, node_id: str, keys: Sequence[str]) -> dict[str, Any]:
    """The same for sandboxes on another node, from its server."""
    answer = await asked(request.scope, node_id, f"{request.url.path}?{urlencode({'sandbox_ids': ','.join(keys)})}")
    told: dict[str, Any] = {} if answer is None else json.loads(answer)["sandboxes"]
    return told


@router.get("/sandboxes/{sandbox_id}/metrics")
async def metrics(sandbox: SandboxHere, caller: Calling, start: Moment = None, end: Moment = None) -> list[Any]:
    if start is not None and end is not None and start > end:
        raise E2BError(400, "start time cannot be after end time")
    current = (await caller.context.controller.get(caller.who, sandbox.sandbox_id)).sandbox
    if current.state in {State.DELETING, State.DELETED, State.FAILED}:
        raise sandbox_not_found(sandbox.key)
    # An end given in seconds is that whole second.
    until = _END_OF_TIME if end is None else math.nextafter(end + 1, 0)
    samples = await caller.context.usage_sampler.between(current, start or 0, until)
    return [metric(current, sample) for sample in samples]


@router.get("/sandboxes/{sandbox_id}/logs")
async def logs(
    sandbox: SandboxHere, caller: Calling, start: Milliseconds = None, limit: Limit = _MAX_LOGS
) -> dict[str, Any]:
    """Oldest first, from a given time."""
    events = await caller.context.events.between(caller.who, sandbox.sandbox_id, since=_seconds(start), limit=limit)
    return {"logs": [log_line(event) for event in events], "logEntries": [log_entry(event) for event in events]}


@router.get("/v2/sandboxes/{sandbox_id}/logs")
async def logs_v2(
    sandbox: SandboxHere,
    caller: Calling,
    cursor: Milliseconds = None,
    limit: Limit = _MAX_LOGS,
    direction: Annotated[Literal["forward", "backward"], Query()] = "forward",
    level: Level = None,
    search: Annotated[str | None, Query(max_length=256)] = None,
) -> dict[str, Any]:
    """From the cursor, forward or backward in time."""
    back = direction == "backward"
    since, until = (None, _seconds(cursor)) if back else (_seconds(cursor), None)
    events = await caller.context.events.between(
        caller.who, sandbox.sandbox_id, since=since, until=until, limit=limit, newest_first=back
    )
    least = _LEVELS.index(level) if level else 0
    entries = [log_entry(event) for event in events if _LEVELS.index(level_of(event)) >= least]
    return {"logs": [entry for entry in entries if not search or search in entry["message"]]}


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
