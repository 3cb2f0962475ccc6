"""Calls to providers: which provider has a sandbox, what each operation asks of it, and a timeout for every call.

A call that times out has an unknown outcome, not a failed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from paddock.egress.policy import EgressPolicy
from paddock.errors import ProviderTimeout, ProviderUnavailable
from paddock.lifecycle import git_clone
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.states import DELETE, PAUSE, RESUME, Operation
from paddock.machine.base import Machine
from paddock.providers.base import IsolationLevel, Mount, Provider, Resources, SandboxSpec
from paddock.settings import Settings
from paddock.store import sandboxes
from paddock.store.records import SandboxRow

T = TypeVar("T")


class ProviderCalls:
    def __init__(self, settings: Settings, providers: Mapping[str, Provider], nodes: Nodes) -> None:
        self._settings = settings
        self._providers = providers
        self._nodes = nodes

    def of(self, sandbox: SandboxRow) -> Provider:
        """Raises if the sandbox lives on another node, so that a sandbox that is absent here is not taken for
        deleted."""
        self._nodes.require(sandbox)
        return self.named(sandbox.provider)

    def named(self, name: str) -> Provider:
        try:
            return self._providers[name]
        except KeyError:
            raise ProviderUnavailable(
                f"This sandbox lives at the provider {name!r}, which this server is not configured for."
            ) from None

    async def run(self, awaitable: Awaitable[T], step: str, seconds: float | None = None) -> T:
        return await with_timeout(seconds or self._settings.provider_timeout, awaitable, step)

    async def attach(self, sandbox: SandboxRow) -> Machine:
        return await self.run(self.of(sandbox).attach(sandbox.sandbox_id), "attach")

    async def carry_out(self, operation: Operation, sandbox: SandboxRow) -> None:
        """Pause, resume or delete."""
        provider, sandbox_id = self.of(sandbox), sandbox.sandbox_id
        if operation is PAUSE:
            await self.run(provider.pause(sandbox_id, keep_memory=sandbox.memory_kept), operation.name)
        else:
            calls = {RESUME: provider.resume, DELETE: provider.delete}
            await self.run(calls[operation](sandbox_id), operation.name)

    async def clone(self, sandbox: SandboxRow, url: str) -> None:
        await self.run(git_clone.clone(await self.attach(sandbox), url), "git clone", git_clone.SECONDS)


def spec_of(sandbox: SandboxRow) -> SandboxSpec:
    """What a provider is told of a sandbox."""
    return SandboxSpec(
        sandbox_id=sandbox.sandbox_id,
        key=sandbox.key,
        owner_id=sandbox.owner_id,
        user_id=sandbox.user_id,
        template_id=sandbox.template_id,
        env=sandbox.env,
        resources=Resources(sandbox.cpu, sandbox.memory_mb, sandbox.disk_mb, sandbox.pids),
        labels=sandboxes.labels_of(sandbox),
        egress=EgressPolicy.from_json(sandbox.egress),
        isolation=None if sandbox.isolation is None else IsolationLevel(sandbox.isolation.value),
        mounts=tuple(Mount(**mount) for mount in sandbox.mounts),
    )


async def with_timeout(seconds: float, awaitable: Awaitable[T], step: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise ProviderTimeout(
            f"The provider did not finish {step!r} within {seconds:g} s; Paddock goes on trying in the background.",
            retry_after=5,
        ) from None
