"""The Provider: gets machines and ends them. Everything that happens inside one is the Machine's.

Promises every provider keeps, because the lifecycle rests on them:

- Every call is **idempotent by sandbox id**: after a crash the same call is made again and must lead to the same end.
- ``None`` from ``inspect`` and absence from ``list`` are definite answers. Whatever is not definite raises
  :class:`~paddock.errors.ProviderUnavailable`: unknown is never gone.
- :class:`~paddock.errors.ProviderRefused` means a definite no: nothing was done, and trying again will not help.
- ``list`` shows only what this installation made, with enough in ``labels`` to write its row again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class Found:
    """A machine as the provider sees it."""

    sandbox_id: str
    state: MachineState
    reference: str
    """The provider's own name for it: a container id, a pod name, a vendor's id."""
    created_at: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Provider(ABC):
    name: str

    async def start(self) -> None:  # noqa: B027 - there may be nothing to make ready
        """Make ready, or raise with what the operator can do about it. Called once, before anything else."""

    async def close(self) -> None:  # noqa: B027
        """Let go of what this process holds. Machines live on."""

    @abstractmethod
    async def templates(self) -> list[str]:
        """The template ids that ``create`` accepts; the first is the default."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> Found: ...

    @abstractmethod
    async def inspect(self, sandbox_id: str) -> Found | None: ...

    @abstractmethod
    async def list(self) -> list[Found]: ...

    @abstractmethod
    async def pause(self, sandbox_id: str) -> None:
        """Freeze; a machine that is not there is a :class:`~paddock.errors.SandboxNotFound`."""

    @abstractmethod
    async def resume(self, sandbox_id: str) -> None: ...

    @abstractmethod
    async def delete(self, sandbox_id: str) -> None:
        """End it and everything of it. One that is not there is deleted already."""

    @abstractmethod
    async def attach(self, sandbox_id: str) -> Machine:
        """The inside of a running machine; a missing one is a :class:`~paddock.errors.SandboxNotFound`."""
