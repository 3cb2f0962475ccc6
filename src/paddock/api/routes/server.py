"""The server itself: health, start page, templates."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from paddock import __version__
from paddock.api.auth import Calling
from paddock.api.openapi import failures, guarded_router, operation_id
from paddock.models import Health, PoolStock, TemplateInfo, TemplateList
from paddock.server.context import ServerContext

router = APIRouter(tags=["server"], generate_unique_id_function=operation_id)
templates = guarded_router("server", responses=failures())

_HEALTH: dict[int | str, dict[str, Any]] = {
    **{status: failures()[status] for status in (400, 405)},
    503: {"model": Health, "description": "The database does not answer."},
}
_READY: dict[int | str, dict[str, Any]] = {
    **_HEALTH,
    503: {"model": Health, "description": "The database does not answer, or the disk is full."},
}


@router.get("/health", responses=_HEALTH)
async def health(request: Request, response: Response) -> Health:
    """200 with `ok`, or 503 with `degraded`, in the same format."""
    return await _health(request, response)


@router.head("/health", responses=_HEALTH, response_model=None)
async def check_health(request: Request, response: Response) -> Response:
    await _health(request, response)
    return Response(status_code=response.status_code or 200)


@router.get("/ready", responses=_READY)
async def ready(request: Request, response: Response) -> Health:
    """200 if sandboxes can be created; 503 if `/health` is degraded, or the disk has no space for new ones."""
    found = await _health(request, response)
    if found.disk != "ok":
        response.status_code = 503
    return found


@router.get("/", include_in_schema=False)
async def index() -> dict[str, str]:
    return {"name": "Paddock", "version": __version__, "docs": "/docs", "openapi": "/openapi.json"}


async def _health(request: Request, response: Response) -> Health:
    context: ServerContext = request.app.state.context
    well = await context.healthy()
    has_room = context.disk_monitor.shortage is None
    response.status_code = 200 if well else 503
    stock = context.pool.stock()
    return Health(
        status="ok" if well else "degraded",
        version=__version__,
        provider=context.default_provider,
        database="ok" if well else "unavailable",
        disk="ok" if has_room else "low",
        server_id=context.server_id,
        database_log_bytes=context.store.log_bytes,
        loop_stalls=context.watchdog.count,
        pool=None if stock is None else PoolStock(ready=stock.ready, wanted=stock.wanted),
    )


@templates.get("/templates")
async def list_templates(caller: Calling) -> TemplateList:
    """The templates of all providers of this server that respond; for `docker` these are images."""
    found = await caller.context.controller.templates_by_provider()
    return TemplateList(
        templates=[
            TemplateInfo(template_id=name, provider=provider, default=number == 0)
            for provider, names in found.items()
            for number, name in enumerate(names)
        ]
    )
