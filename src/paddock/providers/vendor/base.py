"""The interface of a machine vendor. The provider does the rest, in the same way for every vendor.

Guarantees of an implementation: errors come from :mod:`paddock.errors`; a machine that does not exist raises
:class:`~paddock.errors.SandboxNotFound` (``get`` returns None); ``list`` is complete or raises.
"""

from __future__ import annotations

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from paddock import errors
from paddock.egress.addresses import closed_entry
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Rule
from paddock.machine.agent.bridge import BridgeEndpoint
from paddock.providers.base import IsolationReport, MachineState, Resources

AGENT_PORT = 47583
"""Port on which the agent's bridge listens inside."""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One machine to create. ``metadata`` identifies it later."""

    sandbox_id: str
    template_id: str
    metadata: Mapping[str, str]
    lease: int
    """Seconds after which the vendor stops it unless the lease is renewed."""
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
    """Display name for messages."""
    root = "root"
    """User as whom the agent is started."""

    def __init__(self, api_key: str) -> None:
        self._key = api_key

    @abstractmethod
    async def start(self) -> None:
        """Raise if the vendor rejects the credentials, with what the operator can do about it."""

    async def close(self) -> None:  # noqa: B027 - optional
        """Release what this process holds."""

    @abstractmethod
    def templates(self) -> list[str]:
        """Known templates, the default first. An account may have many more: see ``has_template``."""

    @abstractmethod
    async def has_template(self, template_id: str) -> bool:
        """Ask the vendor. True also if only ``create`` can tell."""

    def template_of_image(self, image: str) -> str:
        return image

    def secret(self, purpose: str) -> str:
        """A secret of this account for one purpose; the same on every server that has the account's key."""
        return hmac.new(self._key.encode(), f"paddock {purpose}".encode(), hashlib.sha256).hexdigest()

    @abstractmethod
    def isolation(self) -> IsolationReport | None:
        """The isolation of a machine; None if unknown."""

    @abstractmethod
    async def create(self, order: MachineRequest) -> VendorMachine: ...

    @abstractmethod
    async def get(self, reference: str) -> VendorMachine | None: ...

    @abstractmethod
    async def list(self, metadata: Mapping[str, str]) -> list[VendorMachine]:
        """All machines, running and stopped, that were created with this metadata."""

    @abstractmethod
    async def pause(self, reference: str, *, keep_memory: bool) -> None:
        """Idempotent."""

    @abstractmethod
    async def resume(self, reference: str, lease: int) -> None: ...

    @abstractmethod
    async def renew(self, reference: str, lease: int) -> None:
        """Extend the lease to ``lease`` seconds from now."""

    @abstractmethod
    async def delete(self, reference: str) -> None:
        """Succeeds if the machine does not exist."""

    @abstractmethod
    async def endpoint(self, reference: str) -> BridgeEndpoint:
        """How to reach ``AGENT_PORT`` of a running machine."""

    @abstractmethod
    async def upload(self, reference: str, files: Mapping[str, bytes], user: str) -> None: ...

    @abstractmethod
    async def run(self, reference: str, script: str, user: str) -> ScriptResult:
        """Run a shell script inside and wait for its end."""


def check_public(policy: EgressPolicy) -> None:
    """A private address would be in the vendor's network, and what it is there is unknown."""
    named = [*policy.private, *(text for text in policy.allow if closed_entry(Rule.parse(text)) is not None)]
    if named:
        raise errors.Unsupported(
            f"{', '.join(named[:5])}: private networks cannot be opened for a machine at a vendor, where they would be "
            "the vendor's own. Leave them out, or use a provider on your own machines."
        )


def domain_entries(rule: Rule) -> list[str]:
    """As vendors write domains."""
    itself = [rule.domain] if rule.itself and rule.domain else []
    return itself + ([f"*.{rule.domain}"] if rule.subdomains else [])
