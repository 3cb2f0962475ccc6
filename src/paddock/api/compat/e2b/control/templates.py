"""Templates by the names that E2B's clients know them by, and their list in E2B's shape.

``base`` and ``code-interpreter-v1`` are what the clients ask for when they are not told; here both are the provider's
default template. In the second the interpreter starts at once, in the first when its port is first used.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response

from paddock.api.auth import Authenticated, Calling
from paddock.api.compat.e2b.control.route import E2BRoute
from paddock.api.compat.e2b.control.shapes import ENVD_VERSION
from paddock.api.compat.e2b.errors import E2BError, not_available
from paddock.clock import iso
from paddock.store.listing import TemplateFilter

BASE = "base"
INTERPRETER = "code-interpreter-v1"
DEFAULT_NAMES = (BASE, INTERPRETER)
MCP_GATEWAY = "mcp-gateway"
NO_MCP_GATEWAY = (
    "mcp=… is not available on this server: it needs E2B's template mcp-gateway, which starts servers of Docker's MCP "
    "catalogue as containers. Create the sandbox without it and give it MCP servers as programs or URLs: PUT "
    "/sandboxes/{sandbox_id}/mcp-servers of this server's own API, or `paddock mcp add`; every sandbox serves them as "
    "one MCP server"
)
_REFERENCE = re.compile(r"(?:[A-Za-z0-9_.-]+/)?[A-Za-z0-9_.-]+(?::[A-Za-z0-9_.-]+)?", re.ASCII)
_ANY_TAG = ("default", "latest")
_NAMESPACE = uuid.UUID("6f0f0a53-96a5-4c6e-b7b4-0a2a5a5f5d0b")

router = APIRouter(route_class=E2BRoute)


@dataclass(frozen=True, slots=True)
class NamedTemplate:
    template_id: str
    alias: str | None
    """The name that was asked for, where it is not the template's own."""


async def find(caller: Authenticated, reference: str) -> NamedTemplate:
    """The template with this reference; refused in E2B's format if there is none."""
    known = await caller.context.controller.templates()
    if reference in known:
        return NamedTemplate(reference, None)
    if not _REFERENCE.fullmatch(reference):
        raise E2BError(400, f"Invalid template reference: {reference[:200]}")
    name, _, tag = reference.partition(":")
    if name in known:
        found = NamedTemplate(name, None)
    elif name.lower() in DEFAULT_NAMES:
        found = NamedTemplate(known[0], name.lower())
    elif name == MCP_GATEWAY:
        raise E2BError(400, NO_MCP_GATEWAY)
    elif await caller.context.controller.has_template(reference):
        return NamedTemplate(reference, None)
    else:
        raise E2BError(404, f"template '{name[:200]}' not found")
    if tag and tag not in _ANY_TAG:
        raise E2BError(404, f"template '{name}' with tag '{tag[:200]}' not found")
    return found


async def for_filter(caller: Authenticated, reference: str) -> TemplateFilter | None:
    """The filter for lists by this template name; None if no sandbox can have it."""
    if ":" in reference:
        raise E2BError(400, "a template filter takes a template ID or a name, without a tag")
    try:
        found = await find(caller, reference)
    except E2BError as problem:
        if problem.status == 404:
            return None
        raise
    return TemplateFilter(found.template_id, found.alias, unnamed=found.alias == BASE)


@router.get("/templates")
async def list_templates(caller: Calling) -> list[dict[str, Any]]:
    known = await caller.context.controller.templates()
    return [_listed(caller, template_id, default=template_id == known[0]) for template_id in known]


@router.get("/templates/aliases/{alias:path}")
async def template_by_alias(alias: str, caller: Calling) -> dict[str, Any]:
    found = await find(caller, alias)
    return {"templateID": found.template_id, "public": True}


@router.get("/templates/{template_id:path}/tags")
async def tags(template_id: str, caller: Calling) -> list[dict[str, Any]]:
    """Every template has one build, tagged `default`."""
    found = await find(caller, template_id)
    return [{"tag": "default", "buildID": _build_id(found.template_id), "createdAt": iso(0)}]


@router.delete("/templates/{template_id:path}")
async def delete_template(template_id: str, caller: Calling) -> Response:
    """Also the route by which a snapshot is deleted; there are no snapshots."""
    await find(caller, template_id)
    raise not_available("Deleting templates is")


def _listed(caller: Authenticated, template_id: str, *, default: bool) -> dict[str, Any]:
    settings = caller.context.settings
    names = list(DEFAULT_NAMES) if default else []
    return {
        "templateID": template_id,
        "buildID": _build_id(template_id),
        "cpuCount": max(1, round(settings.default_cpu)),
        "memoryMB": settings.default_memory_mb,
        "diskSizeMB": settings.default_disk_mb,
        "public": True,
        "aliases": names,
        "names": names or [template_id],
        "createdAt": iso(0),
        "updatedAt": iso(0),
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
    }


def _build_id(template_id: str) -> str:
    """Derived from the template's id, since each template has one build."""
    return str(uuid.uuid5(_NAMESPACE, template_id))
