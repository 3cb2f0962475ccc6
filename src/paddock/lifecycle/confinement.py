"""A sandbox's isolation report, and its egress rules, which can change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.accounts.accounts import Principal
from paddock.clock import Clock
from paddock.egress.records import EgressReport
from paddock.errors import SandboxNotFound
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.creation import changed_egress
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.states import SETTLED_ALIVE
from paddock.lifecycle.transitions import Transitions, cannot
from paddock.models import EgressRules, Isolation
from paddock.providers.base import IsolationReport, Provider
from paddock.settings import Settings
from paddock.store import events, sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow


@dataclass(frozen=True, slots=True)
class SandboxIsolation:
    report: IsolationReport
    requested: Isolation | None


class Confinement:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        controller: Controller,
        transitions: Transitions,
        calls: ProviderCalls,
        bus: Bus,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._controller = controller
        self._transitions = transitions
        self._calls = calls
        self._bus = bus

    async def isolation(self, who: Principal, sandbox_id: str) -> SandboxIsolation:
        sandbox, provider = await self._settled_alive(who, sandbox_id)
        report = await self._calls.run(provider.isolation(sandbox_id), "isolation")
        return SandboxIsolation(report, sandbox.isolation)

    async def egress(self, who: Principal, sandbox_id: str) -> EgressReport:
        sandbox, provider = await self._settled_alive(who, sandbox_id)
        report = await self._calls.run(provider.egress(sandbox_id), "egress")
        if report.policy.to_json() != sandbox.egress:
            # A crash interrupted a change: the rules that the provider enforces are authoritative.
            async with self._store.write() as connection:
                await sandboxes.patch(connection, sandbox_id, egress=report.policy.to_json())
        return report

    async def set_egress(
        self, who: Principal, sandbox_id: str, rules: EgressRules, *, network: Mapping[str, Any] | None = None
    ) -> EgressReport:
        """Applies at once to new connections, and closes open ones that are no longer allowed.

        ``network``: the same rules as the E2B client sent them.
        """
        _, provider = await self._settled_alive(who, sandbox_id)
        await self._transitions.in_turn(sandbox_id, lambda sandbox: self._change(who, sandbox, rules, network))
        return await self._calls.run(provider.egress(sandbox_id), "egress")

    async def _change(
        self, who: Principal, sandbox: SandboxRow, rules: EgressRules, network: Mapping[str, Any] | None
    ) -> None:
        """Change the provider first: it persists the rules itself, and nothing has changed until it answers. The new
        rules are based on what the provider enforces, since a row may be older after an adoption or a crash."""
        if sandbox.state not in SETTLED_ALIVE:
            raise cannot(sandbox, "be asked about its confinement")
        provider = self._calls.of(sandbox)
        before = (await self._calls.run(provider.egress(sandbox.sandbox_id), "egress")).policy
        policy = changed_egress(who, before, rules, self._settings)
        await self._calls.run(provider.set_egress(sandbox.sandbox_id, policy), "set egress")
        kept = policy.to_json()
        lists = {name: entries for name, entries in kept.items() if name != "mode"}
        async with self._store.write() as connection:
            if not await sandboxes.patch(connection, sandbox.sandbox_id, egress=kept, network=network):
                raise SandboxNotFound.by_id(sandbox.sandbox_id)
            await events.append(connection, sandbox.sandbox_id, self._clock.now(), ("egress.changed", lists))
        self._bus.publish(sandbox.sandbox_id)

    async def _settled_alive(self, who: Principal, sandbox_id: str) -> tuple[SandboxRow, Provider]:
        """The row and provider of a sandbox that has a machine. Reading does not resume a paused sandbox."""
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        if sandbox.state not in SETTLED_ALIVE:
            raise cannot(sandbox, "be asked about its confinement")
        return sandbox, self._calls.of(sandbox)
