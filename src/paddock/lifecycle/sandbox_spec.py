"""Converts a sandbox's row to the spec that a provider gets."""

from __future__ import annotations

from paddock.egress.policy import EgressPolicy
from paddock.providers.base import IsolationLevel, Mount, Resources, SandboxSpec
from paddock.store import sandboxes
from paddock.store.records import SandboxRow


def spec_of(sandbox: SandboxRow) -> SandboxSpec:
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
