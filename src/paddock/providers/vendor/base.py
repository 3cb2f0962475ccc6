"""What a vendor of machines must be able to do. The provider does the rest, the same way for every one of them.

Promises of an implementation: what is raised comes from :mod:`paddock.errors`; a machine that is not there is a
:class:`~paddock.errors.SandboxNotFound` (``get`` answers None); ``list`` is whole or raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from paddock.egress.policy import EgressPolicy
from paddock.machine.agent.bridge import BridgeEndpoint
from paddock.providers.base import IsolationReport, MachineState, Resources

AGENT_PORT = 47583
"""Where the agent's bridge listens inside."""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One machine to make. ``metadata`` is how it is found again."""

    sandbox_id: str
    template_id: str
    metadata: Mapping[str, str]
    lease: int
    """Seconds after which the vendor stops it by itself, unless it is renewed."""
    egress: EgressPolicy
    resources: Resources


@dataclass(frozen=True, slots=True)
class VendorMachine:
    reference: str
    state: MachineState
    metadata: Mapping[str, str]
    started_at: float
    cpu: float
    memory_mb: int


@dataclass(frozen=True, slots=True)
class ScriptResult:
    exit_code: int
    output: str


class Vendor(ABC):
    name: str
    title: str
    """As people call it, in messages."""
    root = "root"
    """Who the agent is to be started as."""

    @abstractmethod
    async def start(self) -> None:
        """Raise where the vendor does not take our credentials, with what the operator can do about it."""

    async def close(self) -> None:  # noqa: B027 - there may be nothing to let go of
        """Let go of what this process holds."""

    @abstractmethod
    def templates(self) -> list[str]:
        """The default one first. An account may have many more: see ``has_template``."""

    @abstractmethod
    async def has_template(self, template_id: str) -> bool:
        """Asks the vendor. True also where only ``create`` can tell."""

    def template_of_image(self, image: str) -> str:
        return image

    @abstractmethod
    def secret(self, purpose: str) -> str:
        """A secret of this account's for one purpose, the same on every server that has the account's key."""

    @abstractmethod
    def isolation(self) -> IsolationReport | None:
        """What stands around a machine; None where nobody can say."""

    @abstractmethod
    async def create(self, order: MachineRequest) -> VendorMachine: ...

    @abstractmethod
    async def get(self, reference: str) -> VendorMachine | None: ...

    @abstractmethod
    async def list(self, metadata: Mapping[str, str]) -> list[VendorMachine]:
        """All machines, running and stopped, that were made with these."""

    @abstractmethod
    async def pause(self, reference: str, *, keep_memory: bool) -> None:
        """One that is stopped already stays so."""

    @abstractmethod
    async def resume(self, reference: str, lease: int) -> None: ...

    @abstractmethod
    async def renew(self, reference: str, lease: int) -> None:
        """It is wanted for so many seconds more, from now on."""

    @abstractmethod
    async def delete(self, reference: str) -> None:
        """One that is not there is deleted already."""

    @abstractmethod
    async def endpoint(self, reference: str) -> BridgeEndpoint:
        """The way to ``AGENT_PORT`` of a running machine."""

    @abstractmethod
    async def upload(self, reference: str, files: Mapping[str, bytes], user: str) -> None: ...

    @abstractmethod
    async def run(self, reference: str, script: str, user: str) -> ScriptResult:
        """A shell script inside, to its end."""
