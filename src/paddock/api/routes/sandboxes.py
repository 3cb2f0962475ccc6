"""Sandboxes: create, list, pause, resume, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from paddock.api.auth import Authenticated, Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import IdempotencyKey, Limit, SandboxIdHere
from paddock.api.shapes import created_answer, describe, sandbox_answer, sandbox_page
from paddock.models import (
    ConnectSandbox,
    CreatedSandbox,
    CreateSandbox,
    ExposePort,
    PortUrl,
    SandboxAnswer,
    SandboxId,
    SandboxInfo,
    SandboxPage,
    SandboxRef,
    SetTimeout,
    State,
    Success,
    UserId,
)

router = guarded_router("sandboxes")
by_path = guarded_router("sandboxes")


@router.post("/sandboxes/create", response_model=CreatedSandbox)
async def create_sandbox(body: CreateSandbox, caller: Calling, idempotency_key: IdempotencyKey = None) -> Response:
    """Create a sandbox, and answer when it runs. A retry with the same `Idempotency-Key` returns the first answer.

    With a `command`, answers when the command has ended or its soft timeout has passed. A failing command is an answer;
    a command that cannot be started is an error whose details contain the id of the running sandbox.
    """
    context, command = caller.context, None
    seen = await context.controller.create(caller.who, body, idempotency_key)
    if body.mcp_servers:
        await context.mcp_servers.begin(caller.who, seen.sandbox.sandbox_id)
    if body.command is not None:
        command = await context.commands.run_first(caller.who, seen, body.command, body.command_timeout, caller.holding)
    # Serialized here: FastAPI would validate the model again, which costs as much as serializing it.
    answer = created_answer(seen, context, command)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post("/sandboxes/connect")
async def connect_sandbox(body: ConnectSandbox, caller: Calling) -> SandboxAnswer:
    """Resume the sandbox if it is paused, and extend its deadline."""
    seen = await caller.context.controller.connect(caller.who, body.sandbox_id, body.timeout)
    return sandbox_answer(seen, caller.context, "The sandbox is running.")


@router.post("/sandboxes/pause")
async def pause_sandbox(body: SandboxRef, caller: Calling) -> SandboxAnswer:
    """Pause the sandbox; its next use resumes it."""
    seen = await caller.context.controller.pause(caller.who, body.sandbox_id)
    return sandbox_answer(seen, caller.context, "The sandbox is paused.")


@router.post("/sandboxes/resume")
async def resume_sandbox(body: SandboxRef, caller: Calling) -> SandboxAnswer:
    seen = await caller.context.controller.resume(caller.who, body.sandbox_id)
    return sandbox_answer(seen, caller.context, "The sandbox is running.")


@router.post("/sandboxes/timeout")
async def set_timeout(body: SetTimeout, caller: Calling) -> SandboxAnswer:
    """Set the idle timeout in seconds, counted from now. It stays in effect after connect, pause and restart."""
    seen = await caller.context.controller.set_timeout(caller.who, body.sandbox_id, body.timeout, body.action)
    return sandbox_answer(seen, caller.context, f"The timeout is {body.timeout} seconds.")


@router.post("/sandboxes/expose-port")
async def expose_port(body: ExposePort, caller: Calling) -> PortUrl:
    """A URL of this port for a browser: valid for one day, or without limit if ports are public."""
    async with caller.context.controller.use(caller.who, body.sandbox_id) as use:
        await use.record(event=("port.exposed", {"port": body.port}))
        url = caller.context.port_links.exposed_url(use.sandbox, body.port)
        program_url = caller.context.port_links.program_url(use.sandbox, body.port)
    return PortUrl(sandbox_id=body.sandbox_id, port=body.port, url=url, program_url=program_url)


@router.post("/sandboxes/delete")
async def delete_sandbox(body: SandboxRef, caller: Calling) -> Success:
    """Delete the sandbox and everything in it, now."""
    return await _delete(caller, body.sandbox_id)


@router.get("/sandboxes/status")
async def sandbox_status(sandbox_id: Annotated[SandboxId, Query()], caller: Calling) -> SandboxInfo:
    return await _status(caller, sandbox_id)


@router.get("/sandboxes")
async def list_sandboxes(
    caller: Calling,
    user_id: Annotated[UserId | None, Query()] = None,
    status: Annotated[list[State] | None, Query(max_length=16, description="May be given more than once.")] = None,
    cursor: Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")] = None,
    limit: Limit = 100,
    here: Annotated[
        bool, Query(description="Only those of the machine, or vendor, of the server that is asked.")
    ] = False,
) -> SandboxPage:
    """Newest first, in pages; deleted ones only with `status=deleted`."""
    page = await caller.context.controller.list(
        caller.who, user_id=user_id, states=status, cursor=cursor, limit=limit, here=here
    )
    return sandbox_page(page, caller.context)


@by_path.get("/sandboxes/{sandbox_id}/status")
async def sandbox_status_by_path(sandbox_id: SandboxIdHere, caller: Calling) -> SandboxInfo:
    return await _status(caller, sandbox_id)


@by_path.get("/sandboxes/{sandbox_id}")
async def get_sandbox(sandbox_id: SandboxIdHere, caller: Calling) -> SandboxInfo:
    return await _status(caller, sandbox_id)


@by_path.delete("/sandboxes/{sandbox_id}")
async def delete_sandbox_by_path(sandbox_id: SandboxIdHere, caller: Calling) -> Success:
    return await _delete(caller, sandbox_id)


async def _status(caller: Authenticated, sandbox_id: str) -> SandboxInfo:
    return describe(await caller.context.controller.get(caller.who, sandbox_id), caller.context)


async def _delete(caller: Authenticated, sandbox_id: str) -> Success:
    await caller.context.controller.delete(caller.who, sandbox_id)
    return Success(message="The sandbox is deleted.")
