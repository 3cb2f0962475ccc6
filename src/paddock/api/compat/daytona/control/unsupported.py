"""What Daytona offers and Paddock does not: refused in Daytona's format; lists are empty."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from paddock import __version__
from paddock.api.auth import Authenticated, Calling
from paddock.api.compat.daytona.control.lifecycle import MAX_AUTO_ARCHIVE
from paddock.api.compat.daytona.control.shapes import toolbox_url
from paddock.api.compat.daytona.errors import DaytonaError, not_available
from paddock.api.compat.daytona.route import DaytonaRoute, SandboxHere
from paddock.clock import iso

router = APIRouter(route_class=DaytonaRoute)

_MISSING = {
    "POST /snapshots": "Making snapshots is",
    "DELETE /snapshots/{name:path}": "Deleting snapshots is",
    "POST /volumes": "Volumes are",
    "POST /secret": "Secrets are",
    "POST /warm-pools": "Warm pools of your own are",
    "GET /object-storage/push-access": "Uploading the context of an image is",
    "GET /sandbox/ssh-access/validate": "SSH access is",
}


@router.get("/volumes")
@router.get("/secret")
@router.get("/warm-pools")
async def nothing(caller: Calling) -> list[Any]:
    return []


@router.get("/secret/paginated")
async def no_secrets(caller: Calling) -> dict[str, Any]:
    return {"items": [], "total": 0, "nextCursor": None}


@router.get("/volumes/by-name/{name:path}")
@router.get("/volumes/{name}")
@router.delete("/volumes/{name}")
async def volume(name: str, caller: Calling) -> Response:
    raise DaytonaError(404, f"Volume {name[:200]} not found")


@router.api_route("/secret/{name}", methods=["GET", "PATCH", "DELETE"])
async def secret(name: str, caller: Calling) -> Response:
    raise DaytonaError(404, f"Secret {name[:200]} not found")


@router.api_route("/warm-pools/{name}", methods=["PATCH", "DELETE"])
async def warm_pool(name: str, caller: Calling) -> Response:
    raise DaytonaError(404, f"Warm pool {name[:200]} not found")


@router.get("/snapshots")
async def snapshots(
    caller: Calling,
    page: Annotated[int, Query(ge=1, le=1 << 30)] = 1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    name: Annotated[str, Query(max_length=200)] = "",
    source: Annotated[str, Query(alias="sourceSandboxId", max_length=200)] = "",
) -> dict[str, Any]:
    """Every template is a public snapshot; none was made from a sandbox."""
    known = [] if source else [one for one in await caller.context.controller.templates() if name in one]
    items = known[(page - 1) * limit : page * limit]
    pages = math.ceil(len(known) / limit)
    found = [_snapshot(caller, template) for template in items]
    return {"items": found, "total": len(known), "page": page, "totalPages": pages}


@router.get("/snapshots/{name:path}/build-logs-url")
async def snapshot_logs(name: str, caller: Calling) -> Response:
    await _known(caller, name)
    raise not_available("Build logs are")


@router.post("/snapshots/{name:path}/activate")
async def activate_snapshot(name: str, caller: Calling) -> dict[str, Any]:
    """All snapshots are always active."""
    return _snapshot(caller, await _known(caller, name))


@router.get("/snapshots/{name:path}")
async def snapshot(name: str, caller: Calling) -> dict[str, Any]:
    return _snapshot(caller, await _known(caller, name))


@router.get("/sandbox/{sandbox_id}/build-logs-url")
async def build_logs(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available("Build logs are")


@router.get("/config")
async def config(caller: Calling, request: Request) -> dict[str, Any]:
    settings = caller.context.settings
    here = toolbox_url(caller, request).removesuffix("/daytona/toolbox")
    known = await caller.context.controller.templates()
    return {
        "version": __version__,
        "oidc": {"issuer": "", "clientId": "", "audience": "", "provider": "none"},
        "linkedAccountsEnabled": False,
        "announcements": {},
        "proxyTemplateUrl": f"{settings.public_scheme}://{{{{PORT}}}}-{{{{sandboxId}}}}.{settings.domain}",
        "proxyToolboxUrl": f"{here}/daytona/toolbox",
        "defaultSnapshot": known[0],
        "dashboardUrl": here,
        "maxAutoArchiveInterval": MAX_AUTO_ARCHIVE,
        "maintananceMode": False,  # spelled so on the wire
        "environment": "production",
    }


@router.get("/regions")
@router.get("/shared-regions")
async def regions(caller: Calling) -> list[dict[str, Any]]:
    name = caller.context.default_provider
    return [{"id": name, "name": name, "regionType": "shared", "createdAt": iso(0), "updatedAt": iso(0)}]


async def _known(caller: Authenticated, name: str) -> str:
    if not await caller.context.controller.has_template(name):
        raise DaytonaError(404, f"Snapshot {name[:200]} not found")
    return name


def _snapshot(caller: Authenticated, template: str) -> dict[str, Any]:
    settings = caller.context.settings
    return {
        "id": template,
        "general": True,
        "name": template,
        "imageName": template,
        "state": "active",
        "size": None,
        "entrypoint": None,
        "cpu": max(1, math.ceil(settings.default_cpu)),
        "gpu": 0,
        "mem": max(1, math.ceil(settings.default_memory_mb / 1024)),
        "disk": max(1, math.ceil(settings.default_disk_mb / 1024)),
        "errorReason": None,
        "createdAt": iso(0),
        "updatedAt": iso(0),
        "lastUsedAt": None,
        "sourceSandboxId": None,
    }


def _missing(what: str) -> Any:
    async def refuse(caller: Calling) -> Response:
        raise not_available(what)

    return refuse


for _route, _what in _MISSING.items():
    _method, _, _path = _route.partition(" ")
    router.add_api_route(_path, _missing(_what), methods=[_method])
