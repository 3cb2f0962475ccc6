"""Sandbox routes: create, connect, pause, set the timeout, delete; both versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from paddock import errors
from paddock.api.auth import Authenticated, Calling
from paddock.api.compat.e2b.control import network, requests
from paddock.api.compat.e2b.control.creating import check_timeout, create
from paddock.api.compat.e2b.control.lifecycle import lifecycle_of
from paddock.api.compat.e2b.control.replay import Replay
from paddock.api.compat.e2b.control.route import E2BRoute, SandboxHere, done
from paddock.api.compat.e2b.control.shapes import detail, sandbox_answer
from paddock.api.compat.e2b.errors import E2BError, sandbox_not_found
from paddock.models import State, TimeoutAction
from paddock.store.records import SandboxRow

router = APIRouter(route_class=E2BRoute)

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]

_GONE = frozenset({State.CREATING, State.DELETING, State.DELETED, State.FAILED})
"""As far as E2B goes these do not exist: not yet, or no more."""


@router.post("/v2/sandboxes")
async def create_v2(
    body: requests.E2BCreate, caller: Calling, request: Request, key: IdempotencyKey = None
) -> Response:
    return await _create(caller, body, request, key, requests.DEFAULT_TIMEOUT)


@router.post("/sandboxes")
async def create_v1(
    body: requests.E2BCreate, caller: Calling, request: Request, key: IdempotencyKey = None
) -> Response:
    """Always secured, whether or not `secure` is set."""
    return await _create(caller, body, request, key, requests.V1_TIMEOUT)


@router.post("/v2/sandboxes/{sandbox_id}/connect")
async def connect_v2(sandbox: SandboxHere, caller: Calling, body: requests.Connect | None = None) -> Response:
    return await _connect(caller, sandbox, body or requests.Connect())


@router.post("/sandboxes/{sandbox_id}/connect")
async def connect_v1(sandbox: SandboxHere, caller: Calling, body: requests.ConnectV1) -> Response:
    return await _connect(caller, sandbox, body)


@router.post("/sandboxes/{sandbox_id}/resume")
async def resume(sandbox: SandboxHere, caller: Calling, body: requests.Resume | None = None) -> Response:
    """Precursor of connect; only for a paused sandbox."""
    body = body or requests.Resume()
    check_timeout(caller.context.settings, body.timeout)
    current = await _current(caller, sandbox)
    if current.state is State.RUNNING:
        raise E2BError(409, f"Sandbox {sandbox.key} is already running")
    action = None
    if body.auto_pause is not None:
        action = TimeoutAction.PAUSE if body.auto_pause else TimeoutAction.DELETE
    keep_memory = body.memory is not False
    seen, _ = await lifecycle_of(caller.context).connect(
        caller.who, sandbox.sandbox_id, body.timeout, keep_memory=keep_memory, on_timeout=action
    )
    return JSONResponse(sandbox_answer(caller.context, seen.sandbox), 201)


@router.get("/sandboxes/{sandbox_id}")
async def info(sandbox: SandboxHere, caller: Calling) -> dict[str, Any]:
    seen = await caller.context.controller.get(caller.who, sandbox.sandbox_id)
    if seen.sandbox.state in _GONE:
        raise sandbox_not_found(sandbox.key)
    return detail(caller.context, seen.sandbox, seen.expires)


@router.delete("/sandboxes/{sandbox_id}")
async def kill(sandbox: SandboxHere, caller: Calling) -> Response:
    if not await lifecycle_of(caller.context).kill(caller.who, sandbox.sandbox_id):
        raise sandbox_not_found(sandbox.key)
    return done()


@router.post("/sandboxes/{sandbox_id}/pause")
async def pause(sandbox: SandboxHere, caller: Calling, body: requests.Pause | None = None) -> Response:
    keep_memory = body is None or body.memory is not False
    if not await lifecycle_of(caller.context).pause(caller.who, sandbox.sandbox_id, keep_memory=keep_memory):
        raise E2BError(409, f"Error pausing sandbox - sandbox '{sandbox.key}' is already paused")
    return done()


@router.post("/sandboxes/{sandbox_id}/timeout")
async def set_timeout(sandbox: SandboxHere, caller: Calling, body: requests.SetTimeout) -> Response:
    seconds = max(0, body.timeout)
    check_timeout(caller.context.settings, seconds)
    await lifecycle_of(caller.context).set_end(caller.who, sandbox.sandbox_id, seconds)
    return done()


@router.post("/sandboxes/{sandbox_id}/refreshes")
async def refresh(sandbox: SandboxHere, caller: Calling, body: requests.Refresh | None = None) -> Response:
    asked = requests.V1_TIMEOUT if body is None or body.duration is None else body.duration
    seconds = max(requests.V1_TIMEOUT, asked)
    check_timeout(caller.context.settings, seconds)
    await lifecycle_of(caller.context).extend(caller.who, sandbox.sandbox_id, seconds)
    return done()


@router.put("/sandboxes/{sandbox_id}/network")
async def update_network(sandbox: SandboxHere, caller: Calling, body: requests.UpdateNetwork | None = None) -> Response:
    """Replaces all settings: what is left out is cleared."""
    body = body or requests.UpdateNetwork()
    lists = network.lists_of(body, body.allow_internet_access)
    current = await _current(caller, sandbox)
    rules = network.rules_of(lists)
    await caller.context.confinement.set_egress(caller.who, current.sandbox_id, rules, network=lists.to_json())
    return done()


async def _create(
    caller: Authenticated, body: requests.E2BCreate, request: Request, key: str | None, default_timeout: int
) -> Response:
    replay: Replay = request.app.state.replay
    sandbox = await create(caller, body, default_timeout=default_timeout, key=key, replay=replay)
    return JSONResponse(sandbox_answer(caller.context, sandbox), 201)


async def _connect(caller: Authenticated, sandbox: SandboxRow, body: requests.Connect) -> Response:
    if body.timeout < 0:
        raise E2BError(400, "Timeout must not be negative")
    check_timeout(caller.context.settings, body.timeout)
    try:
        seen, woken = await lifecycle_of(caller.context).connect(
            caller.who, sandbox.sandbox_id, body.timeout, keep_memory=body.memory is not False
        )
    except errors.SandboxGone:
        raise E2BError(409, f'Sandbox "{sandbox.key}" is being killed') from None
    return JSONResponse(sandbox_answer(caller.context, seen.sandbox), 201 if woken else 200)


async def _current(caller: Authenticated, sandbox: SandboxRow) -> SandboxRow:
    """The current row of a sandbox that exists as far as E2B's clients can tell."""
    current = (await caller.context.controller.get(caller.who, sandbox.sandbox_id)).sandbox
    if current.state in _GONE:
        raise sandbox_not_found(sandbox.key)
    return current
