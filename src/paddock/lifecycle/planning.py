"""From a create request to the sandbox's row: requested values, the server's defaults, and checks of what is
allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddock.accounts.accounts import Principal
from paddock.accounts.quotas import check_mcp_servers
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.errors import Conflict, Forbidden, Invalid
from paddock.ids import new_sandbox_id, new_sandbox_key
from paddock.lifecycle import private_networks
from paddock.models import CreateSandbox, EgressRules, Isolation, State, TimeoutFrom
from paddock.redaction import without_credentials
from paddock.settings import Settings
from paddock.store.records import SandboxRow

NEVER = 2_000_000_000
"""Seconds, some 63 years: stands for a timeout or a retention that is turned off."""


@dataclass(frozen=True, slots=True)
class CreateTraits:
    """Properties of a new sandbox that the native API does not offer; set by the E2B and Daytona facades."""

    timeout: int | None = None
    """Replaces the request's timeout; not limited by the server's maximum."""
    timeout_from: TimeoutFrom = TimeoutFrom.ACTIVITY
    host_mask: str | None = None
    keep_memory: bool = True
    alias: str | None = None
    network: Mapping[str, Any] | None = None
    name: str | None = None
    retention: int | None = None
    ends_at: float | None = None
    daytona: Mapping[str, Any] | None = None
    env: Callable[[SandboxRow], Mapping[str, str]] = lambda sandbox: {}
    """Variables that identify the sandbox to its processes. Those set by its creator take precedence."""
    fingerprint: str = ""
    """Fingerprint of the original request, for idempotency keys. Empty: computed from the native request."""

    def dress(self, plain: SandboxRow) -> SandboxRow:
        return replace(
            plain,
            timeout=self.timeout or plain.timeout,
            timeout_from=self.timeout_from,
            host_mask=self.host_mask,
            keep_memory=self.keep_memory,
            alias=self.alias,
            network=self.network,
            name=self.name,
            retention=self.retention,
            ends_at=self.ends_at,
            daytona=self.daytona,
            env={**self.env(plain), **plain.env},
        )


NATIVE = CreateTraits()


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
        reference=None,
        template_id=request.template_id or "",
        state=State.CREATING,
        reason=None,
        version=1,
        lease_owner=server_id,
        attempts=0,
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
        timeout_from=TimeoutFrom.ACTIVITY,
        auto_resume=request.auto_resume,
        public_ports=request.public_ports,
        host_mask=None,
        keep_memory=True,
        memory_kept=True,
        alias=None,
        network=None,
        created_at=now,
        started_at=None,
        running_since=None,
        last_activity_at=now,
        state_changed_at=now,
        deleted_at=None,
        event_seq=0,
    )


def renamed(sandbox: SandboxRow) -> SandboxRow:
    """A copy under a new id and key, for when the first id is taken."""
    return replace(sandbox, sandbox_id=new_sandbox_id(sandbox.user_id), key=new_sandbox_key())


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
