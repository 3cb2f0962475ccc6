"""Sandboxes in E2B's response format. Every field that its clients require is present in every state."""

from __future__ import annotations

import json
import math
from typing import Any

from paddock.api.compat.e2b.control import network
from paddock.api.compat.e2b.control.network import NetworkLists
from paddock.clock import iso
from paddock.lifecycle.sampling import UsageSample
from paddock.models import State, TimeoutAction
from paddock.server.context import ServerContext
from paddock.store.records import Deadline, EventRow, SandboxRow

ENVD_VERSION = "0.6.13"
"""What we do of envd. Clients switch their features on by it."""
CLIENT_ID = "paddock"
RUNNING = (State.RUNNING,)
PAUSED = (State.PAUSED, State.PAUSING, State.RESUMING)
"""E2B knows two states. One that is on its way back is paused until it has arrived."""

_LEVELS = {"sandbox.failed": "error", "sandbox.timeout_warning": "warn"}


def sandbox_answer(context: ServerContext, sandbox: SandboxRow) -> dict[str, Any]:
    """Response of create and connect. Derived from the row alone, so that it can be repeated."""
    traffic = None if sandbox.public_ports else context.tokens.traffic(sandbox.key)
    return {
        **_names(sandbox),
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": context.tokens.access(sandbox.key),
        "trafficAccessToken": traffic,
        "domain": context.settings.domain,
    }


def listed(sandbox: SandboxRow, expires: Deadline | None) -> dict[str, Any]:
    running = sandbox.state in RUNNING
    end = expires.due_at if running and expires is not None else sandbox.state_changed_at
    return {
        **_names(sandbox),
        "startedAt": iso(sandbox.started_at or sandbox.created_at),
        "endAt": iso(end),
        "cpuCount": _cores(sandbox),
        "memoryMB": sandbox.memory_mb,
        "diskSizeMB": sandbox.disk_mb,
        "metadata": {name: _text(value) for name, value in sandbox.metadata.items()},
        "state": "running" if running else "paused",
        "envdVersion": ENVD_VERSION,
    }


def detail(context: ServerContext, sandbox: SandboxRow, expires: Deadline | None) -> dict[str, Any]:
    lists = lists_of(sandbox)
    paused = {} if sandbox.state in RUNNING else {"pauseMode": "full" if sandbox.memory_kept else "filesystem"}
    return {
        **listed(sandbox, expires),
        "envdAccessToken": context.tokens.access(sandbox.key),
        "allowInternetAccess": lists.internet,
        "domain": context.settings.domain,
        "network": network.shown(lists, public=sandbox.public_ports, host_mask=sandbox.host_mask),
        "lifecycle": {
            "autoResume": sandbox.auto_resume,
            "onTimeout": "pause" if sandbox.on_timeout is TimeoutAction.PAUSE else "kill",
        },
        **paused,
    }


def lists_of(sandbox: SandboxRow) -> NetworkLists:
    """The stored lists; for a sandbox configured otherwise, those that its egress rules correspond to."""
    if sandbox.network is not None:
        return NetworkLists.from_json(sandbox.network)
    allow, deny = tuple(sandbox.egress["allow"]), tuple(sandbox.egress["deny"])
    if sandbox.egress["mode"] == "none":
        return NetworkLists(internet=False)
    return NetworkLists(allow, ("0.0.0.0/0",) if allow else deny)


def metric(sandbox: SandboxRow, sample: UsageSample) -> dict[str, Any]:
    return {
        "timestamp": iso(sample.at),
        "timestampUnix": int(sample.at),
        "cpuCount": _cores(sandbox),
        "cpuUsedPct": sample.cpu_percent,
        "memUsed": sample.memory_used,
        "memTotal": sandbox.memory_mb << 20,
        "memCache": sample.memory_cache,
        "diskUsed": sample.disk_used,
        "diskTotal": sandbox.disk_mb << 20,
    }


def log_entry(event: EventRow) -> dict[str, Any]:
    fields = {"event": event.type, **{name: _text(value) for name, value in event.data.items()}}
    return {"timestamp": iso(event.at), "message": event.type, "level": level_of(event), "fields": fields}


def log_line(event: EventRow) -> dict[str, Any]:
    """For the CLI, which reads each line as JSON."""
    entry = log_entry(event)
    line = {**entry["fields"], "level": entry["level"], "logger": "paddock", "message": entry["message"]}
    return {"timestamp": entry["timestamp"], "line": json.dumps(line)}


def level_of(event: EventRow) -> str:
    return _LEVELS.get(event.type, "info")


def _names(sandbox: SandboxRow) -> dict[str, Any]:
    alias = {} if sandbox.alias is None else {"alias": sandbox.alias}
    return {"templateID": sandbox.template_id, "sandboxID": sandbox.key, "clientID": CLIENT_ID, **alias}


def _cores(sandbox: SandboxRow) -> int:
    return max(1, math.ceil(sandbox.cpu))


def _text(value: Any) -> str:
    """E2B's metadata are strings; native metadata may be any JSON."""
    return value if isinstance(value, str) else json.dumps(value)
