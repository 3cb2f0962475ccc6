"""Services started on demand: the first connection to a service's port starts it, and waits until it is ready.

All waiting connections share one start: in this process by a common task, across servers and restarts by the process id
(see :mod:`paddock.runtime.service_launch`). A service that has ended is started again by the next connection.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine, ProcessInfo
from paddock.models import PutService, State
from paddock.runtime.service_launch import BuiltInService, ServiceLaunch, latest, start, until_ready
from paddock.runtime.shell_words import SHELL
from paddock.store import services as stored
from paddock.store.database import Store
from paddock.store.records import ServiceRow

MOST_SERVICES = 64
MAX_SERVICES_CHARACTERS = 512 * 1024
"""Of the commands and variables of all services of one sandbox."""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A service as registered, and its latest process if that is known."""

    service: ServiceRow
    process: ProcessInfo | None


class Services:
    def __init__(self, controller: Controller, store: Store, built_in: Sequence[BuiltInService]) -> None:
        self._controller = controller
        self._store = store
        self._built_in = {service.port: service for service in built_in}
        self._starting: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def reach(self, use: ActiveSandbox, port: int) -> bool:
        """Start the service of this port if needed. False if the port has no service."""
        launch = await self._find(use.sandbox.sandbox_id, port)
        if launch is None:
            return False
        where = (use.sandbox.sandbox_id, port)
        task = self._starting.get(where)
        if task is None:
            task = self._starting[where] = asyncio.create_task(self._start(use, launch), name=f"service on port {port}")
            task.add_done_callback(lambda _: self._starting.pop(where, None))
        # Shielded: a waiter that is cancelled must not cancel the start for the others.
        await asyncio.shield(task)
        return True

    async def title(self, sandbox_id: str, port: int) -> str:
        """Display name of this port's service, as at the beginning of a sentence."""
        service = await self._registered(sandbox_id, port)
        if service is not None:
            return f"The service {service.name}"
        built_in = self._built_in.get(port)
        return f"What serves port {port}" if built_in is None else built_in.title

    async def close(self) -> None:
        tasks = list(self._starting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Registration

    async def put(self, who: Principal, sandbox_id: str, name: str, request: PutService) -> ServiceView:
        """Add or replace the service of this name. A running process of an older definition is ended."""
        await self._controller.get(who, sandbox_id)
        service = ServiceRow(
            sandbox_id=sandbox_id,
            name=name,
            port=request.port,
            command=request.command,
            env=request.env,
            cwd=request.cwd or WORKSPACE,
            user=request.user or DEFAULT_USER,
            ready_path=request.ready_path,
            ready_timeout=request.ready_timeout,
        )
        before = await self._stored(sandbox_id, name)
        try:
            async with self._store.write() as connection:
                await stored.put(connection, service)
                if await stored.count(connection, sandbox_id) > MOST_SERVICES:
                    raise errors.Invalid(f"A sandbox may have {MOST_SERVICES} services. Remove some first.")
                if await stored.size(connection, sandbox_id) > MAX_SERVICES_CHARACTERS:
                    raise errors.Invalid(
                        f"Commands and variables of a sandbox's services may have {MAX_SERVICES_CHARACTERS} characters "
                        "together. Put what is long into a file of the sandbox."
                    )
        except IntegrityError:
            raise errors.AlreadyExists(
                f"Another service of this sandbox has port {request.port}.", details={"port": request.port}
            ) from None
        if before is not None and _launch(before).definition != _launch(service).definition:
            await self._end(who, before)
        return ServiceView(service, await self._seen(who, service))

    async def list(self, who: Principal, sandbox_id: str) -> list[ServiceView]:
        """List the services without resuming the sandbox."""
        await self._controller.get(who, sandbox_id)
        async with self._store.read() as connection:
            found = await stored.of(connection, sandbox_id)
        return [ServiceView(service, await self._seen(who, service)) for service in found]

    async def get(self, who: Principal, sandbox_id: str, name: str) -> ServiceView:
        await self._controller.get(who, sandbox_id)
        service = await self._stored(sandbox_id, name)
        if service is None:
            raise errors.ServiceNotFound(f"Sandbox {sandbox_id!r} has no service {name!r}.")
        return ServiceView(service, await self._seen(who, service))

    async def remove(self, who: Principal, sandbox_id: str, name: str) -> None:
        """Remove the service and end its process."""
        service = (await self.get(who, sandbox_id, name)).service
        async with self._store.write() as connection:
            await stored.remove(connection, sandbox_id, name)
        await self._end(who, service)

    async def _stored(self, sandbox_id: str, name: str) -> ServiceRow | None:
        async with self._store.read() as connection:
            return await stored.named(connection, sandbox_id, name)

    async def _seen(self, who: Principal, service: ServiceRow) -> ProcessInfo | None:
        """The service's latest process, if the sandbox is running."""
        sandbox = (await self._controller.get(who, service.sandbox_id)).sandbox
        if sandbox.state is not State.RUNNING:
            return None
        machine = await self._controller.peek(who, service.sandbox_id)
        return (await latest(machine, _launch(service)))[1]

    async def _end(self, who: Principal, service: ServiceRow) -> None:
        process = await self._seen(who, service)
        if process is not None and process.running:
            machine = await self._controller.peek(who, service.sandbox_id)
            try:
                await machine.signal(process.process_id, signal.SIGTERM)
            except (errors.ProcessEnded, errors.ProcessNotFound):
                return

    # Starting

    async def _find(self, sandbox_id: str, port: int) -> Callable[[Machine], Awaitable[ServiceLaunch]] | None:
        """How to launch the service of this port: a registered one takes precedence over a built-in one."""
        service = await self._registered(sandbox_id, port)
        if service is not None:
            return _as_it_is(_launch(service))
        built_in = self._built_in.get(port)
        return None if built_in is None else built_in.launch

    async def _registered(self, sandbox_id: str, port: int) -> ServiceRow | None:
        async with self._store.read() as connection:
            return await stored.at_port(connection, sandbox_id, port)

    async def _start(self, use: ActiveSandbox, find_out: Callable[[Machine], Awaitable[ServiceLaunch]]) -> None:
        launch = await find_out(use.machine)
        process, new = await start(use.machine, launch)
        if new:
            data = {"name": launch.name, "port": launch.port, "process_id": process.process_id}
            await use.record(event=("service.started", data))
        await until_ready(use.machine, launch, process)


def _launch(service: ServiceRow) -> ServiceLaunch:
    return ServiceLaunch(
        name=service.name,
        port=service.port,
        argv=[*SHELL, service.command],
        env=service.env,
        cwd=service.cwd,
        user=service.user,
        ready_path=service.ready_path,
        ready_timeout=service.ready_timeout,
    )


def _as_it_is(launch: ServiceLaunch) -> Callable[[Machine], Awaitable[ServiceLaunch]]:
    async def find_out(machine: Machine) -> ServiceLaunch:
        return launch

    return find_out
