"""Sandbox routes: create, get, start, stop, archive, delete, and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from paddock import errors
from paddock.api.auth import Authenticated, Calling
from paddock.api.compat.daytona.control import network, requests
from paddock.api.compat.daytona.control.creating import check_labels, create
from paddock.api.compat.daytona.control.lifecycle import MAX_AUTO_ARCHIVE, Intervals, lifecycle_of
from paddock.api.compat.daytona.control.shapes import labels_of, name_of, shown, state_of
from paddock.api.compat.daytona.errors import DaytonaError, not_available
from paddock.api.compat.daytona.route import DaytonaRoute, SandboxHere
from paddock.models import State
from paddock.store.records import SandboxRow

router = APIRouter(route_class=DaytonaRoute)

Interval = Annotated[int, Path(ge=0, le=2_000_000)]
_BUSY = frozenset({State.CREATING, State.DELETING})


@router.post("/sandbox")
async def create_sandbox(
    caller: Calling, request: Request, body: requests.DaytonaCreate | None = None
) -> dict[str, Any]:
    return shown(await create(caller, body or requests.DaytonaCreate()), caller, request)


@router.get("/sandbox/{sandbox_id}")
async def get_sandbox(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    await caller.context.journal.settled(sandbox.sandbox_id)
    seen = await caller.context.controller.get(caller.who, sandbox.sandbox_id)
    return shown(seen.sandbox, caller, request)


@router.delete("/sandbox/{sandbox_id}")
async def delete_sandbox(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    return shown(await lifecycle_of(caller.context).delete(caller.who, sandbox.sandbox_id), caller, request)


@router.post("/sandbox/{sandbox_id}/start")
async def start(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    return shown(await lifecycle_of(caller.context).start(caller.who, sandbox.sandbox_id), caller, request)


@router.post("/sandbox/{sandbox_id}/stop")
async def stop(sandbox: SandboxHere, caller: Calling, request: Request, force: bool = False) -> dict[str, Any]:
    """``force`` changes nothing: a stop always ends the processes at once."""
    _settled(sandbox, caller, "stopped")
    return shown(await lifecycle_of(caller.context).stop(caller.who, sandbox.sandbox_id), caller, request)


@router.post("/sandbox/{sandbox_id}/pause")
async def pause(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    if sandbox.state is State.PAUSED and not sandbox.memory_kept:
        raise DaytonaError(400, "Sandbox is stopped; only a started one can be paused")
    return shown(await lifecycle_of(caller.context).pause(caller.who, sandbox.sandbox_id), caller, request)


@router.post("/sandbox/{sandbox_id}/archive")
async def archive(sandbox: SandboxHere, caller: Calling, request: Request) -> dict[str, Any]:
    if sandbox.state is not State.PAUSED:
        raise DaytonaError(400, "Sandbox is not stopped")
    return shown(await lifecycle_of(caller.context).archive(caller.who, sandbox.sandbox_id), caller, request)


@router.post("/sandbox/{sandbox_id}/recover")
async def recover(
    sandbox: SandboxHere, caller: Calling, request: Request, skip_start: bool | None = None
) -> dict[str, Any]:
    """A failed sandbox is recovered if the provider has it after all."""
    if sandbox.state is not State.FAILED:
        raise DaytonaError(400, "Sandbox is not in an error state")
    try:
        return shown(await lifecycle_of(caller.context).start(caller.who, sandbox.sandbox_id), caller, request)
    except errors.SandboxFailed as problem:
        raise DaytonaError(400, f"Sandbox cannot be recovered: {problem.message}") from None


@router.put("/sandbox/{sandbox_id}/labels")
async def replace_labels(sandbox: SandboxHere, caller: Calling, body: requests.Labels) -> dict[str, Any]:
    check_labels(body.labels)
    changed = await lifecycle_of(caller.context).set_labels(caller.who, sandbox.sandbox_id, body.labels)
    return {"labels": labels_of(changed)}


@router.post("/sandbox/{sandbox_id}/public/{public}")
async def set_public(sandbox: SandboxHere, caller: Calling, request: Request, public: bool) -> dict[str, Any]:
    return shown(
        await lifecycle_of(caller.context).set_public(caller.who, sandbox.sandbox_id, public),
        caller,
        request,
    )


@router.post("/sandbox/{sandbox_id}/autostop/{interval}")
async def set_auto_stop(sandbox: SandboxHere, caller: Calling, request: Request, interval: Interval) -> dict[str, Any]:
    return await _set(caller, request, sandbox, lambda known: replace(known, auto_stop=interval))


@router.post("/sandbox/{sandbox_id}/autopause/{interval}")
async def set_auto_pause(sandbox: SandboxHere, caller: Calling, request: Request, interval: Interval) -> dict[str, Any]:
    return await _set(caller, request, sandbox, lambda known: replace(known, auto_pause=interval))


@router.post("/sandbox/{sandbox_id}/autoarchive/{interval}")
async def set_auto_archive(
    sandbox: SandboxHere, caller: Calling, request: Request, interval: Interval
) -> dict[str, Any]:
    """0 stands for the maximum."""
    if interval > MAX_AUTO_ARCHIVE:
        raise DaytonaError(400, f"The auto-archive interval may be at most {MAX_AUTO_ARCHIVE} minutes")
    return await _set(caller, request, sandbox, lambda known: replace(known, auto_archive=interval))


@router.post("/sandbox/{sandbox_id}/autodelete/{interval}")
async def set_auto_delete(
    sandbox: SandboxHere, caller: Calling, request: Request, interval: Annotated[int, Path(le=2_000_000)]
) -> dict[str, Any]:
    """Negative turns it off; 0 deletes it when it stops."""
    return await _set(caller, request, sandbox, lambda known: replace(known, auto_delete=max(-1, interval)))


@router.post("/sandbox/{sandbox_id}/ttl/{minutes}")
async def set_ttl(sandbox: SandboxHere, caller: Calling, request: Request, minutes: Interval) -> dict[str, Any]:
    return shown(
        await lifecycle_of(caller.context).set_ttl(caller.who, sandbox.sandbox_id, minutes),
        caller,
        request,
    )


@router.post("/sandbox/{sandbox_id}/last-activity")
async def update_last_activity(sandbox: SandboxHere, caller: Calling) -> Response:
    await lifecycle_of(caller.context).touch(caller.who, sandbox.sandbox_id)
    return Response(status_code=201)


@router.post("/sandbox/{sandbox_id}/network-settings")
async def set_network(
    sandbox: SandboxHere, caller: Calling, request: Request, body: requests.NetworkSettings
) -> dict[str, Any]:
    after = network.changed(network.shown(sandbox), body)
    rules = network.rules_of(after)
    await caller.context.confinement.set_egress(caller.who, sandbox.sandbox_id, rules, network=network.kept(after))
    seen = await caller.context.controller.get(caller.who, sandbox.sandbox_id)
    return shown(seen.sandbox, caller, request)


@router.post("/sandbox/{sandbox_id}/resize")
async def resize(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available(f"Resizing sandbox {name_of(sandbox)} is")


@router.post("/sandbox/{sandbox_id}/fork")
async def fork(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available("Forks are")


@router.post("/sandbox/{sandbox_id}/snapshot")
async def snapshot(sandbox: SandboxHere, caller: Calling, body: requests.NewName) -> Response:
    raise not_available("Snapshots of sandboxes are")


@router.post("/sandbox/{sandbox_id}/backup")
async def backup(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available("Backups are")


@router.put("/sandbox/{sandbox_id}/secrets")
async def set_secrets(sandbox: SandboxHere, caller: Calling) -> Response:
    raise not_available("Secrets are")


async def _set(
    caller: Authenticated, request: Request, sandbox: SandboxRow, how: Callable[[Intervals], Intervals]
) -> dict[str, Any]:
    return shown(await lifecycle_of(caller.context).change(caller.who, sandbox.sandbox_id, how), caller, request)


def _settled(sandbox: SandboxRow, caller: Authenticated, what: str) -> None:
    if sandbox.state in _BUSY or sandbox.state is State.FAILED:
        state = state_of(sandbox, caller.context.clock.now())
        raise DaytonaError(409, f"Sandbox is {state} and cannot be {what}")
