"""Converts Daytona's create request to a native one."""

from __future__ import annotations

import re
from dataclasses import replace

from paddock.api.auth import Authenticated
from paddock.api.compat.daytona.control import network
from paddock.api.compat.daytona.control.lifecycle import Intervals
from paddock.api.compat.daytona.control.requests import DaytonaCreate
from paddock.api.compat.daytona.control.shapes import DAYTONA_USER
from paddock.api.compat.daytona.errors import DaytonaError, not_available
from paddock.lifecycle.creation import CreateVariant
from paddock.machine.base import DEFAULT_USER
from paddock.models import CreateSandbox, ResourceRequest
from paddock.models.values import MAX_METADATA
from paddock.store.records import SandboxRow

_MAX_TTL = 60 * 24 * 365 * 60
_USERS = (DEFAULT_USER, "root", DAYTONA_USER)
_FROM = re.compile(r"\s*FROM\s+(\S+)\s*", re.IGNORECASE)


async def create(caller: Authenticated, body: DaytonaCreate) -> SandboxRow:
    _check_unsupported(body)
    template = await _template(caller, body)
    kept = _intervals(body, template).checked(caller.context.settings)
    columns = kept.columns()
    rules = network.rules_of(body)
    said = (
        network.kept(body) if any((body.network_block_all, body.network_allow_list, body.domain_allow_list)) else None
    )
    if not 0 <= (body.ttl_minutes or 0) <= _MAX_TTL:
        raise DaytonaError(400, f"ttlMinutes must be between 0 and {_MAX_TTL}")
    request = CreateSandbox(
        user_id=caller.who.user_id,
        template_id=template,
        on_timeout=columns["on_timeout"],
        env=body.env or {},
        metadata=body.labels or {},
        egress=rules if said is not None else None,
        public_ports=bool(body.public),
        resources=ResourceRequest(
            cpu=None if body.cpu is None else float(body.cpu),
            memory_mb=None if body.memory is None else body.memory * 1024,
            disk_mb=None if body.disk is None else body.disk * 1024,
        ),
    )
    ends_at = caller.context.clock.now() + 60 * body.ttl_minutes if body.ttl_minutes else None

    def as_daytona(plain: SandboxRow) -> SandboxRow:
        env = {"DAYTONA_SANDBOX_ID": plain.key, **plain.env}
        return replace(plain, name=body.name or None, ends_at=ends_at, network=said, env=env, **columns)

    return (await caller.context.controller.create(caller.who, request, None, CreateVariant(as_daytona))).sandbox


def _intervals(body: DaytonaCreate, template: str | None) -> Intervals:
    plain = Intervals()
    stop = body.auto_stop_interval
    if stop is None:
        stop = 0 if body.auto_pause_interval else plain.auto_stop
    archive = plain.auto_archive if body.auto_archive_interval is None else body.auto_archive_interval
    delete = plain.auto_delete if body.auto_delete_interval is None else max(-1, body.auto_delete_interval)
    return Intervals(
        auto_stop=stop,
        auto_pause=body.auto_pause_interval or 0,
        auto_archive=archive,
        auto_delete=delete,
        target=body.target or "",
        user="" if body.user in (None, "", DEFAULT_USER, DAYTONA_USER) else str(body.user),
        snapshot=body.snapshot or template,
    )


async def _template(caller: Authenticated, body: DaytonaCreate) -> str | None:
    """A Daytona snapshot is a template here. An image is accepted if a template has its name; nothing is built."""
    known = await caller.context.controller.templates()
    if body.build_info is not None:
        image = _FROM.fullmatch(body.build_info.dockerfile_content or "")
        if image is None:
            raise not_available("Building images is")
        if not await caller.context.controller.has_template(image[1]):
            names = ", ".join(known)
            raise DaytonaError(400, f"Image {image[1][:200]!r} is not available on this server. It has: {names}")
        return image[1]
    if not body.snapshot or await caller.context.controller.has_template(body.snapshot):
        return body.snapshot or None
    raise DaytonaError(404, f"Snapshot {body.snapshot[:200]} not found. This server has: {', '.join(known)}")


def _check_unsupported(body: DaytonaCreate) -> None:
    """Each option is supported or refused, never ignored."""
    unsupported = {
        "GPUs are": body.gpu or body.gpu_type or body.spot,
        "KVM inside sandboxes is": body.kvm,
        "Volumes are": body.volumes,
        "Secrets are": body.secrets,
        "Linked sandboxes are": body.linked_sandbox,
        "An outbound proxy of your own is": body.outbound_proxy_url,
        "An OTel endpoint of your own is": body.otel_endpoint_override,
    }
    for what, wanted in unsupported.items():
        if wanted:
            raise not_available(what)
    if body.user and body.user not in _USERS:
        raise DaytonaError(400, f"There is no user {body.user[:100]!r} in this server's sandboxes: {', '.join(_USERS)}")
    check_labels(body.labels or {})


def check_labels(labels: dict[str, str]) -> None:
    if any("\0" in word for pair in labels.items() for word in pair):
        raise DaytonaError(400, "A NUL character cannot be part of a label")
    if sum(len(name) + len(value) + 8 for name, value in labels.items()) > MAX_METADATA:
        raise DaytonaError(400, f"Labels must stay under {MAX_METADATA} bytes together")
