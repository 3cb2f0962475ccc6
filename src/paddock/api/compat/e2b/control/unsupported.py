"""What E2B offers and Paddock does not: refused in E2B's format; lists are empty."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from paddock.api.auth import Calling
from paddock.api.compat.e2b.control.route import E2BRoute, SandboxHere
from paddock.api.compat.e2b.errors import E2BError, not_available, sandbox_not_found
from paddock.models import State

router = APIRouter(route_class=E2BRoute)

_MISSING = {
    "POST /v3/templates": "Template builds are",
    "POST /v2/templates": "Template builds are",
    "POST /templates": "Template builds are",
    "POST /v2/templates/{template_id}/builds/{build_id}": "Template builds are",
    "POST /templates/{template_id}/builds/{build_id}": "Template builds are",
    "POST /templates/{template_id}": "Template builds are",
    "GET /templates/{template_id}/files/{hash}": "Template builds are",
    "GET /templates/{template_id}/builds/{build_id}/status": "Template builds are",
    "GET /templates/{template_id}/builds/{build_id}/logs": "Template builds are",
    "PATCH /v2/templates/{template_id:path}": "Publishing templates is",
    "PATCH /templates/{template_id:path}": "Publishing templates is",
    "POST /templates/tags": "Template tags are",
    "DELETE /templates/tags": "Template tags are",
    "POST /volumes": "Volumes are",
    "POST /secrets": "Secrets are",
    "GET /teams": "Teams are",
}


@router.get("/snapshots")
@router.get("/volumes")
@router.get("/secrets")
async def nothing(
    caller: Calling,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    token: Annotated[str | None, Query(alias="nextToken", max_length=500)] = None,
) -> list[Any]:
    if token:
        raise E2BError(400, "The token is not one that this server gave out. Start again without it.")
    return []


@router.post("/sandboxes/{sandbox_id}/snapshots")
async def snapshot(sandbox: SandboxHere, caller: Calling) -> Response:
    _there(sandbox.state, sandbox.key)
    raise not_available("Snapshots are")


@router.post("/sandboxes/{sandbox_id}/fork")
async def fork(sandbox: SandboxHere, caller: Calling) -> Response:
    _there(sandbox.state, sandbox.key)
    raise not_available("Forks are")


@router.api_route("/volumes/{name}", methods=["GET", "DELETE"])
async def volume(name: str, caller: Calling) -> Response:
    raise E2BError(404, f"volume '{name[:200]}' not found")


@router.api_route("/secrets/{name}", methods=["GET", "POST", "DELETE"])
async def secret(name: str, caller: Calling) -> Response:
    raise E2BError(404, f"secret '{name[:200]}' not found")


def _there(state: State, key: str) -> None:
    if state in {State.DELETING, State.DELETED, State.FAILED}:
        raise sandbox_not_found(key)


def _missing(what: str) -> Any:
    async def refuse(caller: Calling) -> Response:
        raise not_available(what)

    return refuse


for _route, _what in _MISSING.items():
    _method, _, _path = _route.partition(" ")
    router.add_api_route(_path, _missing(_what), methods=[_method])
