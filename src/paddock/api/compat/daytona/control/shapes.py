"""Sandboxes in Daytona's response format. Every field that its clients require is present in every state."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.requests import Request

from paddock.api.auth import Authenticated
from paddock.api.compat.daytona.control import network
from paddock.api.compat.daytona.control.lifecycle import MAX_AUTO_ARCHIVE, intervals_of
from paddock.clock import iso
from paddock.machine.base import DEFAULT_USER
from paddock.models import State
from paddock.store.records import SandboxRow

DAYTONA_USER = "daytona"
"""Who a user is in Daytona's own images, and so in programs written for them."""
DAEMON_VERSION = "0.190.0"
"""What we do of Daytona's daemon."""
_STATES = {
    State.CREATING: "creating",
    State.RUNNING: "started",
    State.RESUMING: "starting",
    State.DELETING: "destroying",
    State.DELETED: "destroyed",
    State.FAILED: "error",
}
_DESIRED = {
    "creating": "started",
    "starting": "started",
    "stopping": "stopped",
    "pausing": "paused",
    "destroying": "destroyed",
    "error": "started",
}


def state_of(sandbox: SandboxRow, now: float) -> str:
    """`stopped` keeps files only, `paused` also memory; `archived` was requested, or the sandbox was stopped for
    long."""
    if sandbox.state is State.PAUSING:
        return "pausing" if sandbox.memory_kept else "stopping"
    if sandbox.state is not State.PAUSED:
        return _STATES[sandbox.state]
    if sandbox.memory_kept:
        return "paused"
    kept = intervals_of(sandbox)
    minutes = kept.auto_archive or MAX_AUTO_ARCHIVE
    long_ago = sandbox.facade_settings is not None and now >= sandbox.state_changed_at + 60 * minutes
    return "archived" if kept.archived_at is not None or long_ago else "stopped"


def name_of(sandbox: SandboxRow) -> str:
    return sandbox.name or sandbox.key


def target_of(sandbox: SandboxRow) -> str:
    return intervals_of(sandbox).target or sandbox.provider


def labels_of(sandbox: SandboxRow) -> dict[str, str]:
    """Daytona's labels are strings; native metadata may be any JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in sandbox.metadata.items()}


def toolbox_url(caller: Authenticated, request: Request) -> str:
    """On the host that the client used, so that it can reach it."""
    settings = caller.context.settings
    host = request.headers.get("host") or f"{settings.host}:{settings.port}"
    return f"{settings.public_scheme}://{host}/daytona/toolbox"


def listed(sandbox: SandboxRow, caller: Authenticated, request: Request) -> dict[str, Any]:
    kept = intervals_of(sandbox)
    state = state_of(sandbox, caller.context.clock.now())
    failed = sandbox.state is State.FAILED
    lists = network.shown(sandbox)
    found: dict[str, Any] = {
        "id": sandbox.key,
        "organizationId": sandbox.owner_id,
        "name": name_of(sandbox),
        "target": target_of(sandbox),
        "sandboxClass": "container",
        "state": state,
        "desiredState": _DESIRED.get(state, state),
        "snapshot": kept.snapshot or sandbox.template_id,
        "user": kept.user or DEFAULT_USER,
        "recoverable": False,
        "public": sandbox.public_ports,
        "networkBlockAll": bool(lists.network_block_all),
        "cpu": max(1, math.ceil(sandbox.cpu)),
        "gpu": 0,
        "spot": False,
        "memory": _gib(sandbox.memory_mb),
        "disk": _gib(sandbox.disk_mb),
        "labels": labels_of(sandbox),
        "backupState": "None",
        "autoStopInterval": kept.auto_stop,
        "autoPauseInterval": kept.auto_pause,
        "autoArchiveInterval": kept.auto_archive,
        "autoDeleteInterval": kept.auto_delete,
        "createdAt": iso(sandbox.created_at),
        "updatedAt": iso(max(sandbox.state_changed_at, sandbox.created_at)),
        "lastActivityAt": iso(sandbox.last_activity_at),
        "daemonVersion": DAEMON_VERSION,
        "toolboxProxyUrl": toolbox_url(caller, request),
    }
    optional = {
        "errorReason": sandbox.reason if failed else None,
        "networkAllowList": lists.network_allow_list,
        "domainAllowList": lists.domain_allow_list,
        "autoDestroyAt": None if sandbox.ends_at is None else iso(sandbox.ends_at),
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def shown(sandbox: SandboxRow, caller: Authenticated, request: Request) -> dict[str, Any]:
    kept = intervals_of(sandbox)
    env = {name: value for name, value in {**sandbox.env, **kept.env}.items() if name not in kept.unset}
    return {**listed(sandbox, caller, request), "env": env, "kvm": False, "volumes": []}


def _gib(megabytes: int) -> int:
    return max(1, math.ceil(megabytes / 1024))
