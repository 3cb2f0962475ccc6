"""Services of a sandbox: registered here, started by the first connection to their port."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from paddock.api.auth import Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.models import PutService, ServiceAnswer, ServiceList, Success
from paddock.models.services import ServiceName
from paddock.runtime.services import ServiceView

router = guarded_router("services", "/sandboxes/{sandbox_id}/services")

NameHere = Annotated[ServiceName, Path()]


@router.get("")
async def list_services(sandbox_id: SandboxIdHere, caller: Calling) -> ServiceList:
    """The registered services. Does not resume the sandbox."""
    found = await caller.context.services.list(caller.who, sandbox_id)
    return ServiceList(services=[_answer(each) for each in found])


@router.get("/{name}")
async def get_service(sandbox_id: SandboxIdHere, name: NameHere, caller: Calling) -> ServiceAnswer:
    return _answer(await caller.context.services.get(caller.who, sandbox_id, name))


@router.put("/{name}")
async def put_service(body: PutService, sandbox_id: SandboxIdHere, name: NameHere, caller: Calling) -> ServiceAnswer:
    """Add or change a service. It is started by the first connection to its port, which then waits until it is ready.

    A running service is stopped if its command, environment, directory, user or port changes.
    """
    return _answer(await caller.context.services.put(caller.who, sandbox_id, name, body))


@router.delete("/{name}")
async def delete_service(sandbox_id: SandboxIdHere, name: NameHere, caller: Calling) -> Success:
    """Remove a service, and stop it if it runs."""
    await caller.context.services.remove(caller.who, sandbox_id, name)
    return Success()


def _answer(found: ServiceView) -> ServiceAnswer:
    service, process = found.service, found.process
    return ServiceAnswer(
        name=service.name,
        port=service.port,
        command=service.command,
        env=dict(service.env),
        cwd=service.cwd,
        user=service.user,
        ready_path=service.ready_path,
        ready_timeout=service.ready_timeout,
        running=process is not None and process.running,
        process_id=process and process.process_id,
    )
