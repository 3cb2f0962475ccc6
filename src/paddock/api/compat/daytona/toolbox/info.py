"""Information about the sandbox: directories, environment, ports; and features that are not available."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from paddock import errors
from paddock.api.compat.daytona.control.lifecycle import Intervals, lifecycle_of
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.control.shapes import DAEMON_VERSION
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError, not_available
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxRoute
from paddock.clock import iso
from paddock.machine.base import WORKSPACE
from paddock.models import Env, Text
from paddock.models.values import MAX_ENV

router = APIRouter(prefix="/{sandbox_id}", route_class=ToolboxRoute)

_LISTENING = "0A"
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UpdateEnv(DaytonaRequest):
    set: Env | None = None
    unset: list[Text] | None = None


@router.get("/user-home-dir")
@router.get("/user-root-dir")
async def home(inside: InsideHere) -> dict[str, Any]:
    return {"dir": inside.home}


@router.get("/project-dir")
@router.get("/work-dir")
async def work_dir(inside: InsideHere) -> dict[str, Any]:
    return {"dir": WORKSPACE}


@router.get("/version")
async def version(inside: InsideHere) -> dict[str, Any]:
    return {"version": DAEMON_VERSION}


@router.get("/port")
async def ports(inside: InsideHere) -> dict[str, Any]:
    """Ports that a program listens on."""
    found: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        text = (await inside.read(table) or b"").decode(errors="replace")
        for line in text.splitlines()[1:]:
            fields = line.split()
            port = _HEX.fullmatch(fields[1].rpartition(":")[2]) if len(fields) > 3 else None
            if port is not None and fields[3] == _LISTENING:
                found.add(int(port[0], 16))
    return {"ports": sorted(found)}


@router.get("/port/{port}/in-use")
async def port_in_use(inside: InsideHere, port: Annotated[int, Path(ge=1, le=65535)]) -> dict[str, Any]:
    try:
        connection = await inside.machine.dial(port)
    except errors.Conflict:
        return {"isInUse": False}
    await connection.close()
    return {"isInUse": True}


@router.get("/system/metrics")
async def metrics(inside: InsideHere) -> dict[str, Any]:
    sandbox, context = inside.sandbox, inside.caller.context
    stats = await inside.machine.stats()
    sample = await context.usage_sampler.latest(sandbox)
    return {
        "cpuCount": max(1, math.ceil(sandbox.cpu)),
        "cpuUsedPct": sample.cpu_percent if sample else 0.0,
        "memTotal": stats.memory_total,
        "memUsed": stats.memory_used,
        "memCache": stats.memory_cache,
        "diskTotal": stats.disk_total,
        "diskUsed": stats.disk_used,
        "diskFree": max(0, stats.disk_total - stats.disk_used),
        "timestamp": iso(stats.at),
        "timestampUnix": int(stats.at),
    }


@router.post("/env")
async def update_env(inside: InsideHere, body: UpdateEnv) -> dict[str, Any]:
    """Applies to processes started through the toolbox from now on. Running processes are not affected."""
    new, gone = body.set or {}, set(body.unset or ())
    for name in gone:
        if not _NAME.fullmatch(name):
            raise DaytonaError(400, f"{name[:80]!r} is not a name for an environment variable", source=DAEMON)

    def change(known: Intervals) -> Intervals:
        env = {name: value for name, value in {**known.env, **new}.items() if name not in gone - set(new)}
        unset = (set(known.unset) | gone) - set(new)
        if sum(len(name) + len(value) for name, value in env.items()) + sum(map(len, unset)) > MAX_ENV:
            raise DaytonaError(400, f"all variables together must stay under {MAX_ENV} characters", source=DAEMON)
        return replace(known, env=env, unset=tuple(sorted(unset)))

    context, who = inside.caller.context, inside.caller.who
    await lifecycle_of(context).change(who, inside.sandbox.sandbox_id, change)
    return {}


@router.api_route("/computeruse/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def computer_use(inside: InsideHere, rest: str, request: Request) -> Response:
    raise not_available("Computer use is")
