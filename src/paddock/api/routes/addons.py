"""The server's add-ons: large programs that its local sandboxes share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Path, Request, Response

from paddock.api.auth import Authenticated, Calling
from paddock.api.openapi import failures, guarded_router
from paddock.api.sse import EVENTS, EventStream, ServerSentEvent
from paddock.models import AddonAnswer, AddonList, InstallAddon, Success
from paddock.server.addon_installs import AddonInstallation

router = guarded_router("addons", responses=failures(404, 409, 501))

NameHere = Annotated[str, Path(max_length=80, examples=["browser"])]
_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The add-on as it is now; with `stream` the events `progress`… and `end`, or `error`.",
        "content": EVENTS,
    }
}


@router.get("/addons")
async def list_addons(caller: Calling) -> AddonList:
    """All add-ons, whether they are installed, and the progress of running installations."""
    return AddonList(addons=await caller.context.addons.every())


@router.get("/addons/{name}")
async def get_addon(name: NameHere, caller: Calling) -> AddonAnswer:
    """`progress` is set during an installation; `problem` if the last one failed."""
    return await caller.context.addons.get(name)


@router.post("/addons/{name}/install", response_model=AddonAnswer, responses=_STREAMED)
async def install_addon(body: InstallAddon, name: NameHere, request: Request, caller: Calling) -> Response:
    """Start installing an add-on, or its newest version; for admins. Returns at once: see `progress`, or request
    `stream`.

    The installation continues if the caller disconnects; another request during it follows the same installation.
    """
    installation = caller.context.addons.install(caller.who, name, body)
    if body.stream or request.headers.get("accept", "").startswith("text/event-stream"):
        return await EventStream.open(_events(installation, caller), request)
    answer = await caller.context.addons.get(name)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.delete("/addons/{name}")
async def remove_addon(name: NameHere, caller: Calling) -> Success:
    """For admins. Programs of the add-on that are running in sandboxes may fail."""
    await caller.context.addons.remove(caller.who, name)
    return Success(message=f"The add-on {name} is removed.")


async def _events(installation: AddonInstallation, caller: Authenticated) -> AsyncGenerator[ServerSentEvent, None]:
    async with aclosing(installation.follow()) as changes:
        async for progress in changes:
            yield ServerSentEvent("progress", progress)
    yield ServerSentEvent("end", await caller.context.addons.get(installation.name))
