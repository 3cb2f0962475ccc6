"""Quotas: what one user, and all users together, may hold at the same time.

What counts depends on the state. A sandbox that runs, or is in transition, holds CPU, memory, processes and disk. A
paused sandbox holds its disk, and if it was paused with its memory, also memory and processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import Invalid, QuotaExceeded
from paddock.models import Role, State
from paddock.models.mcp import MAX_SERVERS, McpServer
from paddock.settings import Settings
from paddock.store import sandboxes
from paddock.store.records import SandboxRow, UserRow

MAX_MCP_DEFINITION = 64 * 1024
"""Maximum JSON length of one MCP server's definition. A sandbox's definitions are all read whenever its tools are
listed."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one user; 0 means no limit."""

    max_live: int = 0
    max_cpu: float = 0
    max_memory_mb: int = 0
    requests_per_second: float = 0
    max_sandboxes: int = 0
    max_disk_mb: int = 0
    max_processes: int = 0
    max_mcp_servers: int = 0
    """Per sandbox."""
    max_streams: int = 0
    max_bandwidth_mbit: float = 0
    """Mbit/s of all the user's sandboxes together, on each server."""

    @property
    def limits_sandboxes(self) -> bool:
        limits = (self.max_live, self.max_cpu, self.max_memory_mb, self.max_sandboxes, self.max_disk_mb)
        return any(limits) or self.max_processes > 0


_DEFAULTS = {field.name: f"quota_{field.name.removeprefix('max_')}" for field in fields(Quota)}


def quota_of(user: UserRow, settings: Settings) -> Quota:
    """The user's own limits, else the server's defaults. Admins have no default limits."""
    free = user.role is Role.ADMIN
    own = {name: getattr(user, name) for name in _DEFAULTS}
    defaults = {name: 0 if free else getattr(settings, default) for name, default in _DEFAULTS.items()}
    return Quota(**{name: defaults[name] if own[name] is None else own[name] for name in _DEFAULTS})


async def check_user(connection: AsyncConnection, quota: Quota, sandbox: SandboxRow) -> None:
    """Raise QuotaExceeded if starting this new or paused sandbox would exceed its owner's quota. The caller must hold a
    lock on the owner's row, so that two concurrent starts cannot both take the last slot."""
    if not quota.limits_sandboxes:
        return
    used = await sandboxes.totals(connection, sandbox.owner_id, other_than=sandbox.sandbox_id)
    new = sandbox.state is not State.PAUSED
    in_memory = not new and sandbox.memory_kept  # counted already
    memory, processes = (0, 0) if in_memory else (sandbox.memory_mb, sandbox.pids)
    held_memory, held_processes = (sandbox.memory_mb, sandbox.pids) if in_memory else (0, 0)
    # Only amounts that grow are checked: lowering a limit does not stop what the user already has.
    checks = (
        ("sandboxes", used.sandboxes, int(new), quota.max_sandboxes),
        ("live sandboxes", used.live, 1, quota.max_live),
        ("CPU cores", used.cpu, sandbox.cpu, quota.max_cpu),
        ("MB of memory", used.memory_mb + held_memory, memory, quota.max_memory_mb),
        ("processes", used.processes + held_processes, processes, quota.max_processes),
        ("MB of disk", used.disk_mb, sandbox.disk_mb if new else 0, quota.max_disk_mb),
    )
    for name, held, more, limit in checks:
        if limit and more and held + more > limit:
            raise QuotaExceeded(
                f"User {sandbox.owner_id!r} may have {limit:g} {name} at once; this would make it {held + more:g}. "
                f"{_REMEDY.get(name, 'Pause or delete a sandbox')}, or ask an admin for more.",
                details={"quota": name, "limit": limit, "wanted": held + more},
            )


async def check_all(connection: AsyncConnection, settings: Settings, sandbox: SandboxRow) -> None:
    """The same check for the memory of all sandboxes of this installation, if the operator has set a limit."""
    limit = settings.max_total_memory_mb
    if not limit or (sandbox.state is State.PAUSED and sandbox.memory_kept):
        return
    wanted = await sandboxes.total_memory(connection, other_than=sandbox.sandbox_id) + sandbox.memory_mb
    if wanted > limit:
        raise QuotaExceeded(
            f"All sandboxes of this server may have {limit} MB of memory together; this would make it {wanted}. "
            "Try again when others have ended, or ask the server's operator for more.",
            details={"quota": "MB of memory of all users", "limit": limit, "wanted": wanted},
        )


_REMEDY = {
    "sandboxes": "Delete a sandbox",
    "MB of disk": "Delete a sandbox",
    "MB of memory": "Delete a sandbox, or pause one without its memory",
    "processes": "Delete a sandbox, or pause one without its memory",
}


def most_mcp_servers(quota: Quota) -> int:
    return min(quota.max_mcp_servers or MAX_SERVERS, MAX_SERVERS)


def check_mcp_servers(quota: Quota, servers: Mapping[str, McpServer], others: int = 0) -> None:
    """Check the number and size of the servers. ``others``: how many the sandbox has besides these."""
    most, count = most_mcp_servers(quota), len(servers) + others
    for name, server in servers.items():
        if len(json.dumps(server.stored())) > MAX_MCP_DEFINITION:
            raise Invalid(
                f"The MCP server {name!r} is over {MAX_MCP_DEFINITION} characters as JSON. Put what is long into a "
                "file of the sandbox."
            )
    if count > MAX_SERVERS:
        raise Invalid(f"A sandbox may have {MAX_SERVERS} MCP servers. Remove some first.")
    if count > most:
        raise QuotaExceeded(
            f"A sandbox may have {most} MCP servers; this would make it {count}. "
            "Remove some, or ask an admin for more.",
            details={"quota": "MCP servers", "limit": most, "wanted": count},
        )


class StreamQuota:
    """Counts the event streams, WebSockets and terminals that each user has open on this server."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def of(self, user_id: str) -> int:
        return self._open[user_id]

    @contextmanager
    def enter(self, user_id: str, quota: Quota) -> Iterator[None]:
        """Count one more stream while the context is open. Raises QuotaExceeded at the limit."""
        if quota.max_streams and self._open[user_id] >= quota.max_streams:
            raise QuotaExceeded(
                f"User {user_id!r} may have {quota.max_streams} streams and terminals open at once. Close one first.",
                details={"quota": "streams", "limit": quota.max_streams, "wanted": quota.max_streams + 1},
            )
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]
