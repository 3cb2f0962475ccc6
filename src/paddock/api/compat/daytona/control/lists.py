"""Lists of sandboxes, with Daytona's filters, orders and cursors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request

from paddock.api.auth import Calling
from paddock.api.compat.daytona.control.lifecycle import intervals_of
from paddock.api.compat.daytona.control.shapes import listed, name_of, state_of, target_of
from paddock.api.compat.daytona.errors import DaytonaError
from paddock.api.compat.daytona.route import DaytonaRoute
from paddock.models.values import is_valid_unicode
from paddock.store.listing import ListingFilter
from paddock.store.records import SandboxRow

router = APIRouter(route_class=DaytonaRoute)

_MAX_PAGE = 200
_MAX_LABELS = 100
"""Each is a condition of the query."""
_MANY = Annotated[list[str] | None, Query(max_length=64)]
Least = Annotated[int | None, Query(ge=0, le=1 << 30)]
Sort = Literal["name", "cpu", "memoryGib", "diskGib", "lastActivityAt", "createdAt"]
_ORDERS: dict[Sort, str] = {
    "name": "name",
    "cpu": "cpu",
    "memoryGib": "memory_mb",
    "diskGib": "disk_mb",
    "lastActivityAt": "last_activity_at",
    "createdAt": "created_at",
}


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges for each number and time of a sandbox."""

    numbers: tuple[tuple[str, int | None, int | None], ...]
    moments: tuple[tuple[str, float | None, float | None], ...]

    def hold(self, sandbox: SandboxRow) -> bool:
        sizes = {
            "cpu": max(1, math.ceil(sandbox.cpu)),
            "memory": max(1, math.ceil(sandbox.memory_mb / 1024)),
            "disk": max(1, math.ceil(sandbox.disk_mb / 1024)),
            "gpu": 0,
        }
        times = {
            "created": sandbox.created_at,
            "active": max(sandbox.last_activity_at, sandbox.state_changed_at),
            "ends": sandbox.ends_at,
        }
        return all(_within(sizes[name], least, most) for name, least, most in self.numbers) and all(
            _within(times[name], after, before) for name, after, before in self.moments
        )


def spans(
    min_cpu: Annotated[Least, Query(alias="minCpu")] = None,
    max_cpu: Annotated[Least, Query(alias="maxCpu")] = None,
    min_memory: Annotated[Least, Query(alias="minMemoryGiB")] = None,
    max_memory: Annotated[Least, Query(alias="maxMemoryGiB")] = None,
    min_disk: Annotated[Least, Query(alias="minDiskGiB")] = None,
    max_disk: Annotated[Least, Query(alias="maxDiskGiB")] = None,
    min_gpu: Annotated[Least, Query(alias="minGpu")] = None,
    max_gpu: Annotated[Least, Query(alias="maxGpu")] = None,
    created_after: Annotated[datetime | None, Query(alias="createdAtAfter")] = None,
    created_before: Annotated[datetime | None, Query(alias="createdAtBefore")] = None,
    active_after: Annotated[datetime | None, Query(alias="lastEventAfter")] = None,
    active_before: Annotated[datetime | None, Query(alias="lastEventBefore")] = None,
    ends_after: Annotated[datetime | None, Query(alias="autoDestroyAtAfter")] = None,
    ends_before: Annotated[datetime | None, Query(alias="autoDestroyAtBefore")] = None,
) -> Spans:
    return Spans(
        (
            ("cpu", min_cpu, max_cpu),
            ("memory", min_memory, max_memory),
            ("disk", min_disk, max_disk),
            ("gpu", min_gpu, max_gpu),
        ),
        (
            ("created", _moment(created_after), _moment(created_before)),
            ("active", _moment(active_after), _moment(active_before)),
            ("ends", _moment(ends_after), _moment(ends_before)),
        ),
    )


@router.get("/sandbox")
async def list_sandboxes(
    caller: Calling,
    request: Request,
    within: Annotated[Spans, Depends(spans)],
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    key: Annotated[str, Query(alias="id", max_length=200)] = "",
    name: Annotated[str, Query(max_length=200)] = "",
    labels: Annotated[str | None, Query(max_length=20_000)] = None,
    states: _MANY = None,
    snapshots: _MANY = None,
    regions: Annotated[_MANY, Query(alias="regionIds")] = None,
    classes: Annotated[_MANY, Query(alias="sandboxClasses")] = None,
    public: Annotated[bool | None, Query(alias="isPublic")] = None,
    recoverable: Annotated[bool | None, Query(alias="isRecoverable")] = None,
    sort: Sort = "createdAt",
    order: Literal["asc", "desc"] = "desc",
) -> dict[str, Any]:
    now = caller.context.clock.now()

    def matches(sandbox: SandboxRow) -> bool:
        return (
            sandbox.key.startswith(key.lower())
            and name_of(sandbox).lower().startswith(name.lower())
            and (not states or state_of(sandbox, now) in states)
            and (not snapshots or (intervals_of(sandbox).snapshot or sandbox.template_id) in snapshots)
            and (not regions or target_of(sandbox) in regions)
            and (not classes or "container" in classes)
            and (public is None or sandbox.public_ports is public)
            and not recoverable
            and within.hold(sandbox)
        )

    wanted = ListingFilter(
        owner_id=caller.who.user_id,
        metadata=_labels(labels),
        matches=matches,
        order=_ORDERS[sort],
        descending=order == "desc",
    )
    found = await caller.context.controller.page(wanted, cursor=cursor or None, limit=limit)
    items = [listed(sandbox, caller, request) for sandbox in found.sandboxes]
    return {"items": items, "nextCursor": found.next_cursor}


def _labels(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise DaytonaError(400, "labels must be a JSON object of texts")
    if len(found) > _MAX_LABELS:
        raise DaytonaError(400, f"at most {_MAX_LABELS} labels can be asked for at once")
    if any("\0" in word for pair in found.items() for word in pair):
        raise DaytonaError(400, "A NUL character cannot be part of a label")
    if not all(is_valid_unicode(word) for pair in found.items() for word in pair):
        raise DaytonaError(400, "A label must be valid Unicode")
    return found


def _moment(given: datetime | None) -> float | None:
    if given is None:
        return None
    try:
        return (given if given.tzinfo else given.astimezone()).timestamp()
    except (OverflowError, ValueError, OSError):  # the first and last years cannot be in every time zone
        raise DaytonaError(400, f"{given.isoformat()} is not a moment that can be asked for") from None


def _within(value: float | None, least: float | None, most: float | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)
