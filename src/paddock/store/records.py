"""Records of the store as frozen dataclasses, from which the tables derive. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from paddock.models import Isolation, Role, State, TimeoutAction, TimeoutFrom
from paddock.store.columns import Big, Fallback, Label, Mark, Moment, Named


class DeadlineKind(StrEnum):
    IDLE = "idle"
    """Postponed by activity, unless the timeout counts from the start; absent while the sandbox is paused."""
    LIFETIME = "lifetime"
    """Absolute, counted from the create."""
    RETENTION = "retention"
    """A paused or failed sandbox is deleted after this time."""
    END = "end"
    """Absolute: the sandbox is deleted at this time, whatever its state."""


_CLOSED = {"mode": "none", "allow": [], "deny": []}


def _default_egress() -> Mapping[str, Any]:
    return {"mode": "proxy", "allow": [], "deny": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRow:
    """A sandbox. This is the one statement of its fields: the table, the statements, the repair of rows that cannot be
    read, the labels at the provider and most of what a response shows derive from it."""

    sandbox_id: str
    key: Annotated[Label[str], Mark.UNIQUE]
    owner_id: Label[str]
    user_id: Label[str]
    provider: str
    reference: str | None = None
    template_id: Label[str]
    state: Annotated[State, Fallback(State.FAILED)]
    reason: str | None = None
    version: int = 1
    """Incremented at every change of state. A writer that read an older version must not write."""
    lease_owner: str | None = None
    """The server process that works on its transition."""
    attempts: int = 0
    """Failed attempts at the current transition."""
    timeout: Label[int]
    on_timeout: Annotated[Label[TimeoutAction], Fallback(TimeoutAction.PAUSE)]
    max_lifetime: Label[int | None] = None
    cpu: Label[float]
    memory_mb: Label[Big]
    disk_mb: Label[Big]
    pids: Label[int]
    env: Annotated[Label[Mapping[str, str]], Mark.SECRET] = field(default_factory=dict)
    metadata: Label[Mapping[str, Any]] = field(default_factory=dict)
    git_url: Annotated[Label[str | None], Mark.SECRET] = None
    egress: Annotated[Label[Mapping[str, Any]], Fallback(_CLOSED)] = field(default_factory=_default_egress)
    """``mode``, ``allow`` and ``deny``."""
    isolation: Annotated[Label[Isolation | None], Fallback(Isolation.HARDENED)] = None
    """Minimum isolation level, required by the creator or the server's operator."""
    mounts: Label[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    """Host directories, each with ``source``, ``target`` and ``read_only``."""
    timeout_from: Annotated[Label[TimeoutFrom], Fallback(TimeoutFrom.ACTIVITY)] = TimeoutFrom.ACTIVITY
    """If it counts from the start, ``timeout`` is the requested length, and the deadline has the actual end."""
    auto_resume: Label[bool] = True
    """Whether use, through its ports or by an operation, resumes it."""
    public_ports: Label[bool] = False
    """Whether its ports are open to all who know the address."""
    host_mask: Label[str | None] = None
    """Host header sent to its servers instead of the real one; ``${PORT}`` is replaced by the port."""
    keep_memory: Label[bool] = True
    """Whether a pause by timeout keeps memory, or only files."""
    memory_kept: bool = True
    """Whether the current, or the last, pause kept memory."""
    alias: Label[str | None] = None
    """Name under which a client of a facade requested the template."""
    network: Mapping[str, Any] | None = None
    """Network settings in the words of the facade whose client set them; None if none did."""
    created_at: Label[Moment]
    started_at: Moment | None = None
    running_since: Moment | None = None
    """Running time up to here is in the usage table. None unless running."""
    last_activity_at: Moment
    state_changed_at: Moment
    deleted_at: Moment | None = None
    event_seq: int = 0
    name: Label[str | None] = None
    """Name given by the creator; unique among the owner's live sandboxes."""
    retention: Label[int | None] = None
    """Seconds after which it is deleted when paused; None: the server's default."""
    ends_at: Label[Moment | None] = None
    """When it is deleted, whatever its state."""
    facade_settings: Annotated[Label[Mapping[str, Any] | None], Mark.SECRET, Named("daytona")] = None
    """Settings of a facade's client without a native equivalent; None if it was created otherwise."""
    node_id: str | None = None
    """The node whose provider has it, if several servers share the database. None: not recorded yet."""

    @property
    def revoked_links(self) -> Mapping[str, float]:
        """Digests of the links to its ports that were revoked before their time, and when they would have expired."""
        found: Mapping[str, float] = (self.facade_settings or {}).get("ended_links", {})
        return found


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
    at: Moment
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
    max_memory_mb: Big | None
    requests_per_second: float | None
    created_at: Moment
    max_sandboxes: int | None = None
    max_disk_mb: Big | None = None
    max_processes: Big | None = None
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


@dataclass(frozen=True, slots=True)
class ServiceRow:
    sandbox_id: str
    name: str
    port: int
    command: str
    env: Mapping[str, str]
    cwd: str
    user: str
    ready_path: str | None
    """HTTP path that answers when the service is ready. None: an open port is enough."""
    ready_timeout: float


@dataclass(frozen=True, slots=True)
class McpServerRow:
    sandbox_id: str
    name: str
    definition: Mapping[str, Any]
    """As it was given, with variables and secrets: must not be shown or logged."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """Its tools as of the last time it was asked."""


@dataclass(frozen=True, slots=True)
class Node:
    node_id: str
    name: str
    """Host name of the machine whose server was there last."""
    url: str | None
    """URL at which other servers reach that server; None if its operator has not configured one."""
    boot_id: str
    """Boot id of that machine. Another machine with the same node uses the same directory, or a copy of it."""
    server_id: str
    seen_at: Moment
    """Time of the last heartbeat; 0 after an orderly stop."""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """Which request used an idempotency key, and what it started."""

    owner_id: str
    key: str
    fingerprint: str
    sandbox_id: str
    process_id: str | None
    created_at: Moment
    answer: Mapping[str, Any] | None = None
    """Status and body to repeat, if what was created does not tell: an error response."""
