"""Records of the store as frozen dataclasses. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paddock.models import Isolation, Role, State, TimeoutAction, TimeoutFrom


class DeadlineKind(StrEnum):
    IDLE = "idle"
    """Postponed by activity, unless the timeout counts from the start; absent while the sandbox is paused."""
    LIFETIME = "lifetime"
    """Absolute, counted from the create."""
    RETENTION = "retention"
    """A paused or failed sandbox is deleted after this time."""
    END = "end"
    """Absolute: the sandbox is deleted at this time, whatever its state."""


@dataclass(frozen=True, slots=True)
class SandboxRow:
    sandbox_id: str
    key: str
    owner_id: str
    user_id: str
    provider: str
    reference: str | None
    template_id: str
    state: State
    reason: str | None
    version: int
    """Incremented at every change of state. A writer that read an older version must not write."""
    lease_owner: str | None
    """The server process that works on its transition."""
    attempts: int
    """Failed attempts at the current transition."""
    timeout: int
    on_timeout: TimeoutAction
    max_lifetime: int | None
    cpu: float
    memory_mb: int
    disk_mb: int
    pids: int
    env: Mapping[str, str]
    metadata: Mapping[str, Any]
    git_url: str | None
    egress: Mapping[str, Any]
    """``mode``, ``allow`` and ``deny``."""
    isolation: Isolation | None
    """Minimum isolation level, required by the creator or the server's operator."""
    mounts: Sequence[Mapping[str, Any]]
    """Host directories, each with ``source``, ``target`` and ``read_only``."""
    timeout_from: TimeoutFrom
    """If it counts from the start, ``timeout`` is the requested length, and the deadline has the actual end."""
    auto_resume: bool
    """Whether use, through its ports or by an operation, resumes it."""
    public_ports: bool
    """Whether its ports are open to all who know the address."""
    host_mask: str | None
    """Host header sent to its servers instead of the real one; ``${PORT}`` is replaced by the port."""
    keep_memory: bool
    """Whether a pause by timeout keeps memory, or only files."""
    memory_kept: bool
    """Whether the current, or the last, pause kept memory."""
    alias: str | None
    """Name under which an E2B client requested the template."""
    network: Mapping[str, Any] | None
    """Egress lists as sent by an E2B client; None if no such client set them."""
    created_at: float
    started_at: float | None
    running_since: float | None
    """Running time up to here is in the usage table. None unless running."""
    last_activity_at: float
    state_changed_at: float
    deleted_at: float | None
    event_seq: int
    name: str | None = None
    """Name given by the creator; unique among the owner's live sandboxes."""
    retention: int | None = None
    """Seconds after which it is deleted when paused; None: the server's default."""
    ends_at: float | None = None
    """When it is deleted, whatever its state."""
    daytona: Mapping[str, Any] | None = None
    """Settings of a Daytona client without a native equivalent; None if it was created otherwise."""
    node_id: str | None = None
    """The node whose provider has it, if several servers share the database. None: not recorded yet."""


@dataclass(frozen=True, slots=True)
class Deadline:
    sandbox_id: str
    kind: DeadlineKind
    action: TimeoutAction
    due_at: float
    warn_at: float | None
    """When to warn; None after the warning, or if there is to be none."""
    generation: int
    attempts: int


@dataclass(frozen=True, slots=True)
class EventRow:
    sandbox_id: str
    seq: int
    type: str
    at: float
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UsageRow:
    user_id: str
    sandbox_id: str | None
    day: str | None
    seconds: float
    commands: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class UserRow:
    user_id: str
    role: Role
    disabled: bool
    max_live: int | None
    max_cpu: float | None
    max_memory_mb: int | None
    requests_per_second: float | None
    created_at: float
    max_sandboxes: int | None = None
    max_disk_mb: int | None = None
    max_processes: int | None = None
    max_mcp_servers: int | None = None
    max_streams: int | None = None
    max_bandwidth_mbit: float | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: int
    name: str
    user_id: str
    prefix: str
    created_at: float
    last_used_at: float | None


@dataclass(frozen=True, slots=True)
class Page:
    sandboxes: list[SandboxRow]
    expires: Mapping[str, Deadline]
    """The next deadline of each, by sandbox id."""
    next_cursor: str | None
