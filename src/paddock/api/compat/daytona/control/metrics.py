"""Resource usage of a sandbox, as time series."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from paddock.api.auth import Calling
from paddock.api.compat.daytona.route import DaytonaRoute, SandboxHere
from paddock.clock import iso
from paddock.lifecycle.sampling import UsageSample
from paddock.store.records import SandboxRow

router = APIRouter(route_class=DaytonaRoute)

_PREFIX = "daytona.sandbox."
_SERIES: dict[str, Callable[[SandboxRow, UsageSample], float]] = {
    "cpu.utilization": lambda sandbox, sample: sample.cpu_percent,
    "cpu.limit": lambda sandbox, sample: max(1, math.ceil(sandbox.cpu)),
    "memory.usage": lambda sandbox, sample: sample.memory_used,
    "memory.limit": lambda sandbox, sample: sandbox.memory_mb << 20,
    "memory.cache": lambda sandbox, sample: sample.memory_cache,
    "filesystem.usage": lambda sandbox, sample: sample.disk_used,
    "filesystem.total": lambda sandbox, sample: sandbox.disk_mb << 20,
}


@router.get("/sandbox/{sandbox_id}/telemetry/metrics")
async def metrics(
    sandbox: SandboxHere,
    caller: Calling,
    start: Annotated[datetime | None, Query(alias="from")] = None,
    end: Annotated[datetime | None, Query(alias="to")] = None,
    names: Annotated[list[str] | None, Query(alias="metricNames", max_length=64)] = None,
) -> dict[str, Any]:
    first = 0.0 if start is None else start.timestamp()
    last = math.inf if end is None else end.timestamp()
    samples = await caller.context.usage_sampler.between(sandbox, first, last)
    wanted = {name for text in names or () for name in text.split(",") if name}
    series = [
        {
            "metricName": _PREFIX + name,
            "dataPoints": [{"timestamp": iso(sample.at), "value": value(sandbox, sample)} for sample in samples],
        }
        for name, value in _SERIES.items()
        if not wanted or _PREFIX + name in wanted
    ]
    return {"series": series}
