"""The Provider interface: creates and ends machines. What happens inside a machine is the Machine interface's.

Guarantees of every provider, on which the lifecycle relies:

- Every call is **idempotent by sandbox id**: it is repeated after a crash and must lead to the same result.
- ``None`` from ``inspect`` and absence from ``list`` are definite. Anything uncertain raises
  :class:`~paddock.errors.ProviderUnavailable`: unknown is never treated as gone.
- :class:`~paddock.errors.ProviderRefused` is definite, too: nothing was done, and a retry will not help.
- ``list`` returns only machines of this installation, with enough in ``labels`` to restore their rows.
- What a spec requires (limits, isolation level, egress, mounts) is provided or refused, never silently weakened.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from paddock import errors
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.gate import OutboundConnection
from paddock.egress.policy import EgressPolicy
from paddock.egress.records import EgressReport
from paddock.machine.base import Machine


class MachineState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    """Frozen, or stopped with its files kept; ``resume`` restarts it."""


@dataclass(frozen=True, slots=True)
class Resources:
    cpu: float = 1.0
    memory_mb: int = 512
    disk_mb: int = 1024
    pids: int = 512


@dataclass(frozen=True, slots=True)
class Capacity:
    """Total capacity of a machine, and so the maximum for one sandbox. None: unknown."""

    cpu: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """Disk space for sandboxes, if it is on this machine."""

    free_mb: int
    reserve_mb: int
    """How much is to stay free."""
    promised_mb: int
    """Sum of the limits of all disks."""
    shortage: str | None
    """Why creates are refused at present; None if there is room."""


class IsolationLevel(StrEnum):
    """Isolation levels that a sandbox may require, weakest first. Each includes the previous ones."""

    BASIC = "basic"
    """Own namespaces, seccomp filter, no capabilities outside; limits by rlimits where there is no cgroup."""
    STANDARD = "standard"
    """Also hard limits of memory, CPU and processes by cgroup, and a freezer."""
    STRICT = "strict"
    """Also a uid range of its own, and a hard disk limit."""
    HARDENED = "hardened"
    """Also a kernel of its own (gVisor or a virtual machine)."""

    @property
    def rank(self) -> int:
        return list(IsolationLevel).index(self)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation: whether it is active, how it is implemented, and what to do if it is not active."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True)
class IsolationReport:
    level: IsolationLevel
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Mount:
    """A host directory mounted in the sandbox. Only operators may request one."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a warm machine must have in common with a create to be used for it."""

    template_id: str
    disk_mb: int


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    sandbox_id: str
    key: str
    owner_id: str
    user_id: str
    template_id: str
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Stored by the provider beside the machine and returned by ``inspect`` and ``list`` unchanged."""
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    isolation: IsolationLevel | None = None
    """Minimum isolation level; None: the best that the machine offers, short of a kernel of its own."""
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine as reported by the provider."""

    sandbox_id: str
    state: MachineState
    reference: str
    """The provider's own name for it: a container id, a pod name, a vendor's id."""
    created_at: float
    labels: Mapping[str, str] = field(default_factory=dict)


Notice = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]
"""Called with events that a provider causes by itself: sandbox id, kind of event, event data."""


CRASHED = "sandbox.crashed"
"""Event kind: all processes of the sandbox ended unexpectedly."""


async def unheard(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
    """A notice that is ignored."""


class InsideService(Protocol):
    """A service of this process on a port inside every sandbox, without a process in it."""

    port: int

    def variables(self, key: str) -> Mapping[str, str]:
        """Variables by which programs in the sandbox find the service. Those set by its creator take precedence."""

    async def serve(self, sandbox_id: str, client: socket.socket) -> None:
        """Serve one connection until its end. The caller closes the socket."""


class Provider(ABC):
    name: str
    on_this_machine: bool = True
    """Whether its sandboxes are processes of this machine, which servers on other machines cannot see."""

    async def start(self) -> None:  # noqa: B027 - optional
        """Prepare, or raise with what the operator can do about the problem. Called once, before anything else."""

    async def close(self) -> None:  # noqa: B027
        """Release what this process holds. Machines keep running."""

    def shared_node(self) -> str:
        """What servers with different homes must have in common to see the same machines. Empty: the home itself."""
        return ""

    @abstractmethod
    async def templates(self) -> list[str]:
        """The known template ids; the first is the default."""

    async def has_template(self, template_id: str) -> bool:
        """Whether ``create`` accepts it. Overridden by providers that cannot list all templates they accept."""
        return template_id in await self.templates()

    def template_of_image(self, image: str) -> str:
        """The template id for a container image."""
        return image

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> MachineInfo: ...

    @abstractmethod
    async def inspect(self, sandbox_id: str) -> MachineInfo | None: ...

    @abstractmethod
    async def list(self) -> list[MachineInfo]: ...

    @abstractmethod
    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        """Freeze the machine; raises :class:`~paddock.errors.SandboxNotFound` if it does not exist.

        Without memory every process ends, the files are kept, and ``resume`` starts it anew. This also applies to a
        machine that is frozen already.
        """

    @abstractmethod
    async def resume(self, sandbox_id: str) -> None: ...

    @abstractmethod
    async def delete(self, sandbox_id: str) -> None:
        """Delete the machine and everything that belongs to it. Succeeds if it does not exist."""

    @abstractmethod
    async def attach(self, sandbox_id: str) -> Machine:
        """The inside of a running machine; raises :class:`~paddock.errors.SandboxNotFound` if there is none."""

    # Optional features

    def attached_machine(self, sandbox_id: str) -> Machine | None:
        """The inside of a running machine if it is available without waiting. None: use ``attach``."""
        return None

    async def capacity(self) -> Capacity:
        """Capacity of the machine on which sandboxes run. Unknown for vendors, which refuse excessive requests
        themselves."""
        return Capacity()

    async def storage(self) -> Storage | None:
        """Disk space for sandboxes. None if it is not on this machine."""
        return None

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        """The layers of isolation between this sandbox and the host."""
        raise errors.Unsupported(f"The provider {self.name!r} gives no isolation report.")

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        """Change the egress rules of a live sandbox. Its mode cannot change."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    async def egress(self, sandbox_id: str) -> EgressReport:
        """The policy, the totals and the latest connections."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> OutboundConnection:
        """A connection that the server makes on behalf of the sandbox, under its egress rules."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    def answer_inside(self, service: InsideService) -> bool:
        """Serve it inside every sandbox from now on. Called before ``start``. False if the provider does not support
        it."""
        return False

    def tell(self, notice: Notice) -> None:  # noqa: B027
        """Set the callback for events that this provider causes by itself. Called before ``start``."""

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:  # noqa: B027
        """Set each user's bandwidth limits, for providers that carry the traffic. Called before ``start``."""

    # Warm machines

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        """The shape of a warm machine usable for this spec. None: none can be."""
        return None

    async def warm(self, shape: Shape) -> None:
        """Start one warm machine of this shape. ``create`` hands each out at most once, on any server."""
        raise errors.Unsupported(f"The provider {self.name!r} makes nothing in advance.")

    async def warmed(self) -> Mapping[Shape, int]:
        """Number of warm machines by shape."""
        return {}

    async def cool(self, shape: Shape, count: int) -> None:  # noqa: B027
        """Stop up to ``count`` warm machines of this shape."""
