"""Creating a sandbox: the request, with the server's defaults and after checks of what is allowed, becomes a row, and
the row a machine; once for each idempotency key."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.accounts.accounts import Accounts, Principal
from paddock.accounts.quotas import check_mcp_servers
from paddock.clock import Clock
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.errors import AlreadyExists, Conflict, Forbidden, Invalid, ProviderRefused, StoreUnavailable
from paddock.ids import new_sandbox_id, new_sandbox_key
from paddock.lifecycle import private_networks
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.disk_monitor import DiskMonitor
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.idempotency import Idempotency, fingerprint
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.provider_catalog import Capacities, TemplateCatalog
from paddock.lifecycle.transitions import Transitions
from paddock.models import CreateSandbox, EgressRules, Isolation, State
from paddock.redaction import without_credentials
from paddock.settings import Settings
from paddock.store import mcp_servers, sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow

NEVER = 2_000_000_000
"""Seconds, some 63 years: stands for a timeout or a retention that is turned off."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,126}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CreateVariant:
    """How a create of a facade differs from a native one."""

    of: Callable[[SandboxRow], SandboxRow] = lambda sandbox: sandbox
    """The row that is wanted instead of the one that the native request leads to; not limited by native checks."""
    fingerprint: str = ""
    """Fingerprint of the original request, for idempotency keys. Empty: computed from the native request."""


NATIVE = CreateVariant()


class SandboxCreator:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        *,
        accounts: Accounts,
        engine: Engine,
        calls: ProviderCalls,
        transitions: Transitions,
        idempotency: Idempotency,
        disk_monitor: DiskMonitor,
        bus: Bus,
        nodes: Nodes,
        providers: Collection[str],
        default_provider: str,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._accounts = accounts
        self._engine = engine
        self._transitions = transitions
        self._idempotency = idempotency
        self._disk_monitor = disk_monitor
        self._bus = bus
        self._nodes = nodes
        self._default_provider = default_provider
        self._server_id = server_id
        self.templates = TemplateCatalog(clock, calls, providers, default_provider)
        self._capacities = Capacities(settings, clock, calls)

    async def create(
        self, who: Principal, request: CreateSandbox, idempotency_key: str | None, variant: CreateVariant
    ) -> tuple[SandboxRow, bool]:
        """The sandbox, or the one that an earlier request with this idempotency key created. The flag tells whether it
        is new."""
        plain = self._planned(who, request)
        self._disk_monitor.admit()
        provider, template_id = await self.templates.choose(request.provider, request.template_id)
        plain = replace(plain, provider=provider, template_id=template_id, node_id=self._nodes.of(provider))
        plain = await self._capacities.fit(plain, request.resources)
        used_as = "" if idempotency_key is None else variant.fingerprint or fingerprint("create", request)
        servers = {name: server.stored() for name, server in request.mcp_servers.items()}
        while True:
            try:
                return await self._create(who, variant.of(plain), servers, used_as, idempotency_key, request.git_url)
            # the id is taken: a chance of one in four thousand million for a user's first sandbox
            except IntegrityError:
                plain = renamed(plain)

    def _planned(self, who: Principal, request: CreateSandbox) -> SandboxRow:
        self.templates.check(request.provider)
        provider = request.provider or self._default_provider
        now = self._clock.now()
        return plan(who, request, self._settings, provider=provider, server_id=self._server_id, now=now)

    async def _create(
        self,
        who: Principal,
        sandbox: SandboxRow,
        servers: Mapping[str, Any],
        used_as: str,
        key: str | None,
        git_url: str | None,
    ) -> tuple[SandboxRow, bool]:
        holder = sandbox.sandbox_id

        async def write() -> bool:
            nonlocal holder
            async with self._store.write() as connection:
                if key is not None:
                    claim = await self._idempotency.claim_in(connection, who, key, used_as, sandbox.sandbox_id, None)
                    holder = claim.sandbox_id
                if holder == sandbox.sandbox_id:
                    await self._accounts.check_quota(connection, sandbox)
                    await check_name(connection, sandbox)
                    await self._engine.add(connection, sandbox, git_url)
                    await mcp_servers.add(connection, sandbox.sandbox_id, servers)
            self._bus.publish(holder)
            return holder == sandbox.sandbox_id

        try:
            created = await self._transitions.create(sandbox, write, once=key is None)
        except StoreUnavailable:
            if key is None:  # with a key the caller may retry and get the sandbox then
                self._engine.give_up(sandbox.sandbox_id)
            raise
        if created is not None:
            return created, True
        first = await self._transitions.settled(holder)
        if first.state is State.DELETED and first.started_at is None:
            raise ProviderRefused(first.reason or "The create that used this Idempotency-Key failed.")
        return first, False


def plan(
    who: Principal, request: CreateSandbox, settings: Settings, *, provider: str, server_id: str, now: float
) -> SandboxRow:
    """The row for this request; without a template if the request names none."""
    check_timeout(settings, request.timeout)
    if request.mounts and not who.is_admin:
        raise Forbidden("Only an admin may mount directories of the host into a sandbox.")
    check_mcp_servers(who.quota, request.mcp_servers)
    wanted = request.resources
    return SandboxRow(
        sandbox_id=new_sandbox_id(request.user_id),
        key=new_sandbox_key(),
        owner_id=who.user_id,
        user_id=request.user_id,
        provider=provider,
        template_id=request.template_id or "",
        state=State.CREATING,
        lease_owner=server_id,
        timeout=request.timeout or settings.default_timeout,
        on_timeout=request.on_timeout,
        max_lifetime=request.max_lifetime,
        cpu=wanted.cpu or settings.default_cpu,
        memory_mb=wanted.memory_mb or settings.default_memory_mb,
        disk_mb=wanted.disk_mb or settings.default_disk_mb,
        pids=wanted.pids or settings.default_pids,
        env=request.env,
        metadata=request.metadata,
        git_url=request.git_url and without_credentials(request.git_url),
        egress=_egress(who, request.egress, settings).to_json(),
        isolation=_isolation(request.isolation, settings),
        mounts=[mount.model_dump() for mount in request.mounts],
        auto_resume=request.auto_resume,
        public_ports=request.public_ports,
        created_at=now,
        last_activity_at=now,
        state_changed_at=now,
    )


def renamed(sandbox: SandboxRow) -> SandboxRow:
    """A copy under a new id and key, for when the first id is taken."""
    return replace(sandbox, sandbox_id=new_sandbox_id(sandbox.user_id), key=new_sandbox_key())


async def check_name(connection: AsyncConnection, sandbox: SandboxRow) -> None:
    """Call in the transaction that adds the row. A unique index rejects the second of two concurrent creates."""
    name = sandbox.name
    if name is None:
        return
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:200]!r} cannot be a name: letters, digits, '.', '_', '-' and blanks inside, at most 128 of them."
        )
    if await sandboxes.get_by_name(connection, sandbox.owner_id, name) is not None:
        raise AlreadyExists(f"Sandbox with name {name} already exists", details={"name": name})


async def with_free_name(connection: AsyncConnection, sandbox: SandboxRow) -> SandboxRow:
    """A sandbox that is adopted keeps its name, unless another has taken it meanwhile."""
    taken = sandbox.name is not None and await sandboxes.get_by_name(connection, sandbox.owner_id, sandbox.name)
    return replace(sandbox, name=None) if taken else sandbox


def changed_egress(who: Principal, policy: EgressPolicy, rules: EgressRules, settings: Settings) -> EgressPolicy:
    """The policy with these rules. A list that is not given stays as it is, except for openings that an admin had
    granted: see :mod:`paddock.lifecycle.private_networks`."""
    if rules.mode is not None and rules.mode.value != policy.mode.value:
        raise Conflict(
            f"This sandbox was made with egress {policy.mode.value!r} and keeps it; only the lists can be changed. "
            f"Make a new sandbox for {rules.mode.value!r}.",
            details={"field": "mode", "mode": policy.mode.value},
        )
    return EgressPolicy(
        policy.mode,
        policy.allow if rules.allow is None else tuple(rules.allow),
        policy.deny if rules.deny is None else tuple(rules.deny),
        private_networks.opened(who, policy, rules, settings),
    )


def check_timeout(settings: Settings, timeout: int | None) -> None:
    if timeout is not None and timeout > settings.max_timeout:
        raise Invalid(
            f"A timeout may be at most {settings.max_timeout} seconds here; {timeout} was asked for.",
            details={"field": "timeout", "max": settings.max_timeout},
        )


def _egress(who: Principal, rules: EgressRules | None, settings: Settings) -> EgressPolicy:
    rules = rules or EgressRules()
    mode = EgressMode(settings.default_egress if rules.mode is None else rules.mode.value)
    private = private_networks.opened(who, EgressPolicy(mode), rules, settings)
    return EgressPolicy(mode, tuple(rules.allow or ()), tuple(rules.deny or ()), private)


def _isolation(asked: Isolation | None, settings: Settings) -> Isolation | None:
    """The stronger of what the caller and the operator require."""
    least = Isolation(settings.min_isolation) if settings.min_isolation else None
    if asked is None or least is None:
        return asked or least
    strength = list(Isolation)
    return max(asked, least, key=strength.index)
