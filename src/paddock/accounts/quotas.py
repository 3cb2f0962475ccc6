"""Quotas: how much one user may have at once, and all users together.

What counts depends on what a sandbox holds. One that runs, or is on its way there or back, holds CPU, memory, processes
and disk. One that is paused holds its disk, and where it was frozen its memory and processes as well.
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
"""Characters of one MCP server as JSON. All of a sandbox's are read whenever its tools are."""


@dataclass(frozen=True, slots=True)
class Quota:
    """0 means no limit."""

    max_live: int = 0
    max_cpu: float = 0
    max_memory_mb: int = 0
    requests_per_second: float = 0
    max_sandboxes: int = 0
    max_disk_mb: int = 0
    max_processes: int = 0
    max_mcp_servers: int = 0
    """Of one sandbox."""
    max_streams: int = 0
    max_bandwidth_mbit: float = 0
    """A second, of all sandboxes together, on each server."""

    @property
    def limits_sandboxes(self) -> bool:
        limits = (self.max_live, self.max_cpu, self.max_memory_mb, self.max_sandboxes, self.max_disk_mb)
        return any(limits) or self.max_processes > 0


_DEFAULTS = {field.name: f"quota_{field.name.removeprefix('max_')}" for field in fields(Quota)}


def quota_of(user: UserRow, settings: Settings) -> Quota:
    """What is set for the user, else the server's default; admins have no default limits."""
    free = user.role is Role.ADMIN
    own = {name: getattr(user, name) for name in _DEFAULTS}
    defaults = {name: 0 if free else getattr(settings, default) for name, default in _DEFAULTS.items()}
    return Quota(**{name: defaults[name] if own[name] is None else own[name] for name in _DEFAULTS})


async def check_user(connection: AsyncConnection, quota: Quota, sandbox: SandboxRow) -> None:
    """Refuse to start this sandbox, which is new or paused, where its owner would have too much. The caller holds the
    owner's row, so that two at once cannot both take the last place."""
    if not quota.limits_sandboxes:
        return
    used = await sandboxes.totals(connection, sandbox.owner_id, other_than=sandbox.sandbox_id)
    new = sandbox.state is not State.PAUSED
    in_memory = not new and sandbox.memory_kept  # and so counted already
    memory, processes = (0, 0) if in_memory else (sandbox.memory_mb, sandbox.pids)
    held_memory, held_processes = (sandbox.memory_mb, sandbox.pids) if in_memory else (0, 0)
    # What does not grow is not refused: a limit that was lowered meanwhile takes nothing from anybody.
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
    """The same for the memory of all sandboxes of this installation, where its operator has set a limit."""
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
    """``others``: how many there are beside these."""
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
    """Event streams, WebSockets and terminals that users hold open on this server."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def of(self, user_id: str) -> int:
        return self._open[user_id]

    @contextmanager
    def enter(self, user_id: str, quota: Quota) -> Iterator[None]:
        """One more, if there may be one."""
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
