"""The Provider: gets machines and ends them. Everything that happens inside one is the Machine's.

Promises every provider keeps, because the lifecycle rests on them:

- Every call is **idempotent by sandbox id**: after a crash the same call is made again and must lead to the same end.
- ``None`` from ``inspect`` and absence from ``list`` are definite answers. Whatever is not definite raises
  :class:`~paddock.errors.ProviderUnavailable`: unknown is never gone.
- :class:`~paddock.errors.ProviderRefused` means a definite no: nothing was done, and trying again will not help.
- ``list`` shows only what this installation made, with enough in ``labels`` to write its row again.
- What a spec asks for (limits, isolation level, egress, mounts) is given or refused, never silently weakened.
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
from paddock.egress.outward import OutboundConnection
from paddock.egress.policy import EgressPolicy
from paddock.egress.records import EgressReport
from paddock.machine.base import Machine


class MachineState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    """Frozen, or stopped with its files kept: ``resume`` brings it back."""


@dataclass(frozen=True, slots=True)
class Resources:
    cpu: float = 1.0
    memory_mb: int = 512
    disk_mb: int = 1024
    pids: int = 512


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a machine has in all, and so the most that one sandbox can be given. None: not known here."""

    cpu: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """Room for the disks of sandboxes, where they are on this machine."""

    free_mb: int
    reserve_mb: int
    """What is to stay free."""
    promised_mb: int
    """The limits of all disks together."""
    shortage: str | None
    """Why no new sandbox is made now."""


class IsolationLevel(StrEnum):
    """What a sandbox may insist on, weakest first. Each includes the ones before it."""

    BASIC = "basic"
    """Own namespaces, seccomp filter, no capabilities outside; limits by rlimits where there is no cgroup."""
    STANDARD = "standard"
    """And hard limits of memory, CPU and processes by cgroup, and a freezer."""
    STRICT = "strict"
    """And a uid range that no other sandbox has, and a hard disk limit."""
    HARDENED = "hardened"
    """And a kernel of its own (gVisor or a virtual machine)."""

    @property
    def rank(self) -> int:
        return list(IsolationLevel).index(self)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation: whether it is active, by what, and what to do where it is not."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True)
class IsolationReport:
    level: IsolationLevel
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host inside the sandbox. Only operators may ask for one."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What must be the same for a machine made in advance to serve a create."""

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
    """Kept by the provider beside the machine and given back by ``inspect`` and ``list``, unread."""
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    isolation: IsolationLevel | None = None
    """The least that will do; None takes the best that the machine gives, short of a kernel of its own."""
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine as the provider sees it."""

    sandbox_id: str
    state: MachineState
    reference: str
    """The provider's own name for it: a container id, a pod name, a vendor's id."""
    created_at: float
    labels: Mapping[str, str] = field(default_factory=dict)


Notice = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]
"""Takes word of what a provider did to a sandbox by itself: its id, the kind of event, and the event's data."""


CRASHED = "sandbox.crashed"
"""The kind of event of a sandbox whose processes all ended, and nobody had asked for it."""


async def unheard(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
    """A notice that nobody takes."""


class InsideService(Protocol):
    """What this process serves on a port inside every sandbox, with no process in it."""

    port: int

    def variables(self, key: str) -> Mapping[str, str]:
        """How programs in the sandbox with this key find it. What its creator set wins over them."""

    async def serve(self, sandbox_id: str, client: socket.socket) -> None:
        """One connection to its end. The socket stays the caller's."""


class Provider(ABC):
    name: str
    on_this_machine: bool = True
    """Whether its sandboxes are processes of this very machine, which a server on another could not see."""

    async def start(self) -> None:  # noqa: B027 - there may be nothing to make ready
        """Make ready, or raise with what the operator can do about it. Called once, before anything else."""

    async def close(self) -> None:  # noqa: B027
        """Let go of what this process holds. Machines live on."""

    def shared_node(self) -> str:
        """What servers with different homes must have in common to see the same machines. Empty: the home itself."""
        return ""

    @abstractmethod
    async def templates(self) -> list[str]:
        """The template ids that are known here; the first is the default."""

    async def has_template(self, template_id: str) -> bool:
        """Whether ``create`` may be asked for it. Providers that cannot list what they accept ask elsewhere."""
        return template_id in await self.templates()

    def template_of_image(self, image: str) -> str:
        """What ``create`` is asked for where somebody wants this image."""
        return image

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> MachineInfo: ...

    @abstractmethod
    async def inspect(self, sandbox_id: str) -> MachineInfo | None: ...

    @abstractmethod
    async def list(self) -> list[MachineInfo]: ...

    @abstractmethod
    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        """Freeze; a machine that is not there is a :class:`~paddock.errors.SandboxNotFound`.

        Without its memory every process ends, the files stay, and ``resume`` starts it afresh. That holds for one that
        is frozen already, too.
        """

    @abstractmethod
    async def resume(self, sandbox_id: str) -> None: ...

    @abstractmethod
    async def delete(self, sandbox_id: str) -> None:
        """End it and everything of it. One that is not there is deleted already."""

    @abstractmethod
    async def attach(self, sandbox_id: str) -> Machine:
        """The inside of a running machine; a missing one is a :class:`~paddock.errors.SandboxNotFound`."""

    # What not every provider has

    def attached_machine(self, sandbox_id: str) -> Machine | None:
        """The inside of a running machine, where nothing has to be waited for. None: only ``attach`` can tell."""
        return None

    async def capacity(self) -> Capacity:
        """What the machine has that sandboxes are made on. A vendor's is its own affair: it refuses what it has not."""
        return Capacity()

    async def storage(self) -> Storage | None:
        """Room for their disks. None: it is not this machine's."""
        return None

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        """Which layers stand between this sandbox and the host."""
        raise errors.Unsupported(f"The provider {self.name!r} gives no isolation report.")

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        """Change where a living sandbox may connect to. Its mode stays as it was made."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    async def egress(self, sandbox_id: str) -> EgressReport:
        """The policy, the totals and the latest connections."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> OutboundConnection:
        """A connection that the server makes in the sandbox's stead, under the sandbox's egress rules."""
        raise errors.Unsupported(f"The provider {self.name!r} does not control egress.")

    def answer_inside(self, service: InsideService) -> bool:
        """Serve it inside every sandbox from now on. Called before ``start``. False: this provider has no way to."""
        return False

    def tell(self, notice: Notice) -> None:  # noqa: B027
        """Who is to be told of what this provider does by itself. Called before ``start``."""

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:  # noqa: B027
        """How fast each user's sandboxes may send and receive, for whoever carries their bytes. Before ``start``."""

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        """What a machine made in advance must be to serve this spec. None: it cannot be made in advance."""
        return None

    async def warm(self, shape: Shape) -> None:
        """Make one anonymous machine of this shape. ``create`` hands each one out at most once, whoever asks."""
        raise errors.Unsupported(f"The provider {self.name!r} makes nothing in advance.")

    async def warmed(self) -> Mapping[Shape, int]:
        """How many stand ready."""
        return {}

    async def cool(self, shape: Shape, count: int) -> None:  # noqa: B027
        """End up to ``count`` of those that stand ready."""
