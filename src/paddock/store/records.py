"""What the store remembers, as plain frozen records. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paddock.models import Isolation, Role, State, TimeoutAction, TimeoutFrom


class DeadlineKind(StrEnum):
    IDLE = "idle"
    """Pushed out by activity, unless the timeout is counted from the start; there is none while it is paused."""
    LIFETIME = "lifetime"
    """Absolute, from creation on."""
    RETENTION = "retention"
    """A paused sandbox is deleted after this."""
    END = "end"
    """Absolute, whatever the state: when this has come the sandbox is deleted."""


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
    """Counts every change of state: a writer that holds an older one has lost its right to write."""
    lease_owner: str | None
    """The server process that works on it now."""
    attempts: int
    """Failed tries to finish the present transition."""
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
    """The least that its creator, or the server's operator, insists on."""
    mounts: Sequence[Mapping[str, Any]]
    """Directories of the host, each as ``source``, ``target`` and ``read_only``."""
    timeout_from: TimeoutFrom
    """Where the timeout counts from the start, ``timeout`` is what its creator asked for; the deadline is its end."""
    auto_resume: bool
    """Whether using it, through its ports or by an operation, wakes it."""
    public_ports: bool
    """Whether anybody who knows the address may open its ports."""
    host_mask: str | None
    """The Host header that its servers are shown instead of the real one; ``${PORT}`` stands for the port."""
    keep_memory: bool
    """Whether a pause by timeout keeps what is in memory, or only the files."""
    memory_kept: bool
    """Whether the present, or the last, pause does."""
    alias: str | None
    """The name by which an E2B client asked for the template."""
    network: Mapping[str, Any] | None
    """The egress lists in the words of the E2B client that set them; None where nobody did."""
    created_at: float
    started_at: float | None
    running_since: float | None
    """Up to here running time is in the usage table already. None unless running."""
    last_activity_at: float
    state_changed_at: float
    deleted_at: float | None
    event_seq: int
    name: str | None = None
    """What its creator calls it: no two of an owner's living sandboxes have the same."""
    retention: int | None = None
    """Seconds after which it is deleted once it is paused; None: the server's own."""
    ends_at: float | None = None
    """When it is deleted, whatever its state."""
    daytona: Mapping[str, Any] | None = None
    """What a Daytona client set that nobody else has words for; None where it was made otherwise."""
    node_id: str | None = None
    """Whose provider has it, where several servers share the database. None: not written down yet."""


@dataclass(frozen=True, slots=True)
class Deadline:
    sandbox_id: str
    kind: DeadlineKind
    action: TimeoutAction
    due_at: float
    warn_at: float | None
    """When to warn; None once warned, or where no warning is wanted."""
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
