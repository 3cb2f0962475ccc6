"""The templates from which sandboxes are created."""

from __future__ import annotations

from fastapi import APIRouter

from paddock.api.auth import Calling, GuardedRoute
from paddock.api.openapi import failures, operation_id
from paddock.models import TemplateInfo, TemplateList

router = APIRouter(
    tags=["server"], route_class=GuardedRoute, responses=failures(), generate_unique_id_function=operation_id
)


@router.get("/templates")
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
