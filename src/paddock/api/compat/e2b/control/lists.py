"""Lists of sandboxes, with E2B's filters and pagination."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, Query, Response

from paddock.api.auth import Authenticated, Calling
from paddock.api.compat.e2b.control import templates
from paddock.api.compat.e2b.control.route import E2BRoute
from paddock.api.compat.e2b.control.shapes import PAUSED, RUNNING, listed
from paddock.api.compat.e2b.errors import E2BError
from paddock.models import State
from paddock.store.listing import ListingFilter

router = APIRouter(route_class=E2BRoute)

_STATES: dict[str, tuple[State, ...]] = {"running": RUNNING, "paused": PAUSED}
_MAX_PAGE = 100

Page = Annotated[str | None, Query(alias="nextToken", max_length=500)]


@router.get("/v2/sandboxes")
async def list_v2(
    caller: Calling,
    response: Response,
    metadata: Annotated[str | None, Query(max_length=20_000)] = None,
    state: Annotated[list[str] | None, Query(max_length=16)] = None,
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    started_after: Annotated[datetime | None, Query(alias="startedAfter")] = None,
    template: Annotated[str | None, Query(max_length=400)] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = _MAX_PAGE,
    token: Page = None,
) -> list[dict[str, Any]]:
    """Running and paused sandboxes, ordered by start time."""
    names = _state_names(state)
    wanted = await _wanted(caller, names, metadata, started_after, template)
    if wanted is None:
        if "running" in names:
            response.headers["X-Total-Running"] = "0"
        return []
    controller = caller.context.controller
    found = await controller.page(replace(wanted, descending=order == "desc"), cursor=token or None, limit=limit)
    if "running" in names:
        response.headers["X-Total-Running"] = str(await controller.count(replace(wanted, states=RUNNING)))
    if found.next_cursor is not None:
        response.headers["X-Next-Token"] = found.next_cursor
    return [listed(sandbox, found.expires.get(sandbox.sandbox_id)) for sandbox in found.sandboxes]


@router.get("/sandboxes")
async def list_v1(
    caller: Calling, metadata: Annotated[str | None, Query(max_length=20_000)] = None
) -> list[dict[str, Any]]:
    """All running sandboxes; version 1 has no pages."""
    wanted = await _wanted(caller, ["running"], metadata, None, None)
    answer: list[dict[str, Any]] = []
    cursor = None
    while wanted is not None:
        found = await caller.context.controller.page(wanted, cursor=cursor, limit=1000)
        answer += [listed(sandbox, found.expires.get(sandbox.sandbox_id)) for sandbox in found.sandboxes]
        cursor = found.next_cursor
        if cursor is None:
            break
    return answer


def metadata_of(text: str | None) -> dict[str, str]:
    """Names and values are percent-encoded twice: each by itself, and as a query string."""
    if not text:
        return {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=100)
    except ValueError:
        raise E2BError(400, "error parsing metadata: invalid key value pair in query") from None
    found = {unquote(name): unquote(value) for name, value in pairs}
    if any("\0" in word for pair in found.items() for word in pair):
        raise E2BError(400, "error parsing metadata: a NUL character cannot be part of it")
    return found


async def _wanted(
    caller: Authenticated, states: list[str], metadata: str | None, started_after: datetime | None, template: str | None
) -> ListingFilter | None:
    """None if no sandbox can match."""
    made_from = await templates.for_filter(caller, template) if template else None
    if template and made_from is None:
        return None
    if started_after is not None and started_after.tzinfo is None:
        raise E2BError(400, "startedAfter must have a time zone")
    return ListingFilter(
        owner_id=caller.who.user_id,
        states=[state for name in states for state in _STATES[name]],
        metadata=metadata_of(metadata),
        started_after=None if started_after is None else started_after.timestamp(),
        template=made_from,
        order="started_at",
    )


def _state_names(given: list[str] | None) -> list[str]:
    """Comma-separated, or given several times."""
    names = [name for text in given or () for name in text.split(",") if name]
    for name in names:
        if name not in _STATES:
            raise E2BError(400, f"invalid state '{name[:100]}': it is running or paused")
    return sorted(set(names)) or sorted(_STATES)
