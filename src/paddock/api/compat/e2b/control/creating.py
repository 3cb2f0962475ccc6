"""Converts E2B's create request to a native one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from paddock.api.auth import Authenticated
from paddock.api.compat.e2b.control import network, templates
from paddock.api.compat.e2b.control.replay import Replay, stored_key
from paddock.api.compat.e2b.control.requests import E2BCreate
from paddock.api.compat.e2b.errors import E2BError
from paddock.lifecycle.creation import CreateVariant
from paddock.models import CreateSandbox, TimeoutAction, TimeoutFrom
from paddock.settings import Settings
from paddock.store.records import SandboxRow


async def create(
    caller: Authenticated, body: E2BCreate, *, default_timeout: int, key: str | None, replay: Replay
) -> SandboxRow:
    if key is None:
        return await _create(caller, body, default_timeout, None, "")
    fingerprint = _fingerprint(body)
    return await replay.once(caller, key, fingerprint, lambda: _create(caller, body, default_timeout, key, fingerprint))


async def _create(
    caller: Authenticated, body: E2BCreate, default_timeout: int, key: str | None, fingerprint: str
) -> SandboxRow:
    timeout = default_timeout if body.timeout is None else body.timeout
    if timeout <= 0:
        raise E2BError(400, "Timeout must be greater than 0")
    check_timeout(caller.context.settings, timeout)
    _check_unsupported(body)
    lists = network.lists_of(body.network, body.allow_internet_access)
    mask = network.host_mask_of(body.network)
    found = await templates.find(caller, body.template_id)
    public = body.network is None or body.network.allow_public_traffic is not False
    request = CreateSandbox(
        user_id=caller.who.user_id,
        template_id=found.template_id,
        timeout=timeout,
        on_timeout=TimeoutAction.PAUSE if body.auto_pause else TimeoutAction.DELETE,
        env=body.env_vars or {},
        metadata=body.metadata or {},
        egress=network.rules_of(lists),
        public_ports=public,
        auto_resume=body.auto_resume is not None and body.auto_resume.enabled,
    )

    def as_e2b(plain: SandboxRow) -> SandboxRow:
        return replace(
            plain,
            timeout_from=TimeoutFrom.START,
            host_mask=mask,
            keep_memory=body.auto_pause_memory is not False,
            alias=found.alias,
            network=lists.to_json(),
            env={**_identity_env(plain), **plain.env},
        )

    stored, variant = None if key is None else stored_key(key), CreateVariant(as_e2b, fingerprint)
    sandbox = (await caller.context.controller.create(caller.who, request, stored, variant)).sandbox
    if found.alias == templates.INTERPRETER:
        # Whoever asks for this template is about to run code, and may look for the interpreter from inside at once.
        caller.context.code.warm_up(sandbox.key)
    return sandbox


def check_timeout(settings: Settings, timeout: int) -> None:
    if timeout > settings.max_timeout:
        raise E2BError(400, f"Timeout cannot be greater than {settings.max_timeout / 3600:g} hours")


def _check_unsupported(body: E2BCreate) -> None:
    resumes = body.auto_resume is not None and body.auto_resume.enabled
    if body.auto_pause_memory is False and not body.auto_pause:
        raise E2BError(400, "autoPauseMemory: false needs autoPause: true")
    if body.auto_pause_memory is False and resumes:
        raise E2BError(400, "autoPauseMemory: false excludes autoResume: traffic wakes only what kept its memory")
    if body.iam:
        raise E2BError(400, "Workload identity tokens (iam) are not available on this server")
    if body.mcp:
        raise E2BError(400, templates.NO_MCP_GATEWAY)
    if body.volume_mounts:
        raise E2BError(400, "Volume mounts are not available on this server")


def _identity_env(sandbox: SandboxRow) -> Mapping[str, str]:
    """Variables that E2B sets for every process of a sandbox."""
    return {"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": sandbox.key, "E2B_TEMPLATE_ID": sandbox.template_id}


def _fingerprint(body: E2BCreate) -> str:
    canonical = json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
