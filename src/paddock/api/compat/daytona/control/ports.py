"""Access to a sandbox's ports and files without an API key: previews, signed links, the key that signs file URLs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from paddock.accounts.tokens import link_digest
from paddock.api.auth import Calling
from paddock.api.compat.daytona.control.lifecycle import Intervals, intervals_of, lifecycle_of
from paddock.api.compat.daytona.control.shapes import toolbox_url
from paddock.api.compat.daytona.errors import DaytonaError, not_available
from paddock.api.compat.daytona.route import DaytonaRoute, SandboxHere

router = APIRouter(route_class=DaytonaRoute)

Port = Annotated[int, Path(ge=1, le=65535)]
_MAX_LINK_S = 86_400
_MAX_ENDED = 500


@router.get("/sandbox/{sandbox_id}/ports/{port}/preview-url")
async def preview(sandbox: SandboxHere, caller: Calling, port: Port) -> dict[str, Any]:
    context = caller.context
    url = context.settings.port_url(sandbox.key, port, "")
    return {"sandboxId": sandbox.key, "url": url, "token": context.tokens.traffic(sandbox.key)}


@router.get("/sandbox/{sandbox_id}/ports/{port}/signed-preview-url")
async def signed_preview(
    sandbox: SandboxHere,
    caller: Calling,
    port: Port,
    seconds: Annotated[int, Query(alias="expiresInSeconds", ge=1, le=_MAX_LINK_S)] = 60,
) -> dict[str, Any]:
    link = caller.context.port_links.link_to(sandbox, port, seconds)
    return {"sandboxId": sandbox.key, "port": port, "token": link.token, "url": link.url}


@router.post("/sandbox/{sandbox_id}/ports/{port}/signed-preview-url/{token}/expire")
async def expire_preview(sandbox: SandboxHere, caller: Calling, port: Port, token: str) -> Response:
    """Revoke the link. A browser that has used it already keeps its cookie."""
    expires_at = caller.context.tokens.check_link(sandbox.key, port, token)
    if expires_at is None:
        raise DaytonaError(404, "Signed preview URL not found, or expired already")
    now = caller.context.clock.now()

    def end(known: Intervals) -> Intervals:
        left = {digest: until for digest, until in known.ended_links.items() if until > now}
        if len(left) >= _MAX_ENDED:
            raise DaytonaError(429, "Too many signed preview URLs were expired before their time; make them shorter")
        return replace(known, ended_links={**left, link_digest(token): expires_at})

    await lifecycle_of(caller.context).change(caller.who, sandbox.sandbox_id, end)
    return Response(status_code=200)


@router.get("/sandbox/{sandbox_id}/signing-key")
async def signing_key(sandbox: SandboxHere, caller: Calling) -> Response:
    rotated = intervals_of(sandbox).keys_rotated
    return JSONResponse(caller.context.tokens.file_key(sandbox.key, rotated))


@router.post("/sandbox/{sandbox_id}/signing-key/rotate")
async def rotate_signing_key(sandbox: SandboxHere, caller: Calling) -> Response:
    """Invalidates every file URL that was signed before."""
    changed = await lifecycle_of(caller.context).change(
        caller.who, sandbox.sandbox_id, lambda known: replace(known, keys_rotated=known.keys_rotated + 1)
    )
    return JSONResponse(caller.context.tokens.file_key(sandbox.key, intervals_of(changed).keys_rotated))


@router.get("/sandbox/{sandbox_id}/toolbox-proxy-url")
async def proxy_url(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    return {"url": toolbox_url(caller, request)}


@router.post("/sandbox/{sandbox_id}/ssh-access")
@router.delete("/sandbox/{sandbox_id}/ssh-access")
async def ssh_access(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available("SSH access is")
