"""The templates from which sandboxes are created."""

from __future__ import annotations

from paddock.api.auth import Calling
from paddock.api.openapi import failures, guarded_router
from paddock.models import TemplateInfo, TemplateList

router = guarded_router("server", responses=failures())


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
