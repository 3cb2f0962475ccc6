"""The provider for a vendor's machines: implements the lifecycle's guarantees with what every vendor offers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import IsolationReport, MachineInfo, MachineState, Provider, SandboxSpec
from paddock.providers.common.agent_handle import paused_error
from paddock.providers.common.handle_registry import SandboxLocks
from paddock.providers.common.installation import installation_name
from paddock.providers.vendor.base import MachineRequest, Vendor, VendorMachine
from paddock.providers.vendor.handle import VendorHandle
from paddock.providers.vendor.lease import Lease
from paddock.providers.vendor.metadata import INSTALLATION, SANDBOX, MachineMetadata


class VendorProvider(Provider):
    on_this_machine = False

    def __init__(
        self,
        vendor: Vendor,
        home: Path,
        clock: Clock | None = None,
        *,
        lease: int,
        installation: str = "",
        output: OutputLimits | None = None,
    ) -> None:
        """``installation``: name that identifies this installation's machines; if empty, generated and stored in
        ``home``."""
        self.name = vendor.name
        self._vendor = vendor
        self._home = home
        self._clock = clock or SystemClock()
        self._lease_seconds = lease
        self._given_installation = installation
        self._output = output or OutputLimits()
        self._handles: dict[str, VendorHandle] = {}
        self._lock = SandboxLocks()
        self._lease = Lease(vendor, lease, self._machines)

    async def start(self) -> None:
        await self._vendor.start()
        self._lease.start()

    async def close(self) -> None:
        await self._lease.close()
        handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            await handle.detach()
        await self._vendor.close()

    def shared_node(self) -> str:
        return self._installation

    async def templates(self) -> list[str]:
        return self._vendor.templates()

    async def has_template(self, template_id: str) -> bool:
        return template_id in self._vendor.templates() or await self._vendor.has_template(template_id)

    def template_of_image(self, image: str) -> str:
        return self._vendor.template_of_image(image)

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        async with self._lock(spec.sandbox_id):
            self._check(spec)
            machine = await self._find(spec.sandbox_id)
            if machine is None:
                machine = await self._vendor.create(self._order(spec))
            handle = await self._handle(machine)
            if handle.paused:  # an earlier create was interrupted and its machine stopped: it must run in the end
                await self._vendor.resume(handle.reference, self._lease_seconds)
            _check_size(self._vendor, spec, machine)
            await handle.wake()
            return handle.kept.found(handle.found)

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        machine = await self._look(sandbox_id)
        kept = MachineMetadata.read(machine) if machine else None
        return kept.found(machine) if machine and kept else None

    async def list(self) -> list[MachineInfo]:
        machines = await self._machines()
        return [kept.found(machine) for machine in machines if (kept := MachineMetadata.read(machine))]

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._lock(sandbox_id):
            machine = await self._known(sandbox_id)
            asleep = machine.state is MachineState.PAUSED
            if asleep and keep_memory:
                return
            handle = await self._handle(machine)
            handle.paused = True
            try:
                if asleep:  # to discard the memory of a paused machine it has to be resumed first
                    await self._vendor.resume(machine.reference, self._lease_seconds)
                await self._vendor.pause(machine.reference, keep_memory=keep_memory)
            except (errors.ProviderRefused, errors.TooManyRequests, errors.Unsupported):
                handle.paused = asleep
                raise
            await handle.disconnect()

    async def resume(self, sandbox_id: str) -> None:
        async with self._lock(sandbox_id):
            machine = await self._known(sandbox_id)
            if machine.state is MachineState.PAUSED:
                await self._vendor.resume(machine.reference, self._lease_seconds)
            await (await self._handle(machine)).wake()

    async def delete(self, sandbox_id: str) -> None:
        async with self._lock(sandbox_id):
            handle = self._handles.get(sandbox_id)
            found = {machine.reference for machine in await self._vendor.list(self._of(sandbox_id))}
            if handle is not None:
                handle.deleted = True
                found.add(handle.reference)
            for reference in found:
                await self._vendor.delete(reference)
            await self._forget(sandbox_id)

    async def attach(self, sandbox_id: str) -> Machine:
        handle = self._handles.get(sandbox_id)
        if handle is None or handle.paused:
            async with self._lock(sandbox_id):
                machine = await self._known(sandbox_id)
                if machine.state is MachineState.PAUSED:
                    raise paused_error(sandbox_id)
                handle = await self._handle(machine)
                handle.paused = False
        return handle.machine

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        await self._known(sandbox_id)
        report = self._vendor.isolation()
        if report is None:
            raise errors.Unsupported(f"{self._vendor.title} does not say how it isolates its machines here.")
        return report

    # Finding machines

    @functools.cached_property
    def _installation(self) -> str:
        return self._given_installation or installation_name(self._home)

    async def _machines(self) -> Sequence[VendorMachine]:
        """One per sandbox. Of two for the same sandbox the first counts; the lease of the other is not renewed, so it
        ends."""
        return _first_of_each(await self._vendor.list({INSTALLATION: self._installation}))

    async def _find(self, sandbox_id: str) -> VendorMachine | None:
        found = _first_of_each(await self._vendor.list(self._of(sandbox_id)))
        return found[0] if found else None

    async def _look(self, sandbox_id: str) -> VendorMachine | None:
        """The machine's current state; looked up by reference if that is known, which is never stale."""
        handle = self._handles.get(sandbox_id)
        if handle is not None:
            return await self._vendor.get(handle.reference)
        return await self._find(sandbox_id)

    async def _known(self, sandbox_id: str) -> VendorMachine:
        machine = await self._look(sandbox_id)
        if machine is None:
            await self._forget(sandbox_id)
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return machine

    async def _handle(self, machine: VendorMachine) -> VendorHandle:
        kept = MachineMetadata.read(machine)
        if kept is None:
            raise errors.ProviderUnavailable(
                f"The record of a machine at {self._vendor.title} ({machine.reference}) cannot be read."
            )
        handle = self._handles.get(kept.sandbox_id)
        if handle is None or handle.reference != machine.reference:
            await self._forget(kept.sandbox_id)
            handle = VendorHandle(machine, kept, self._vendor, self._clock, self._output)
            self._handles[kept.sandbox_id] = handle
        return handle

    async def _forget(self, sandbox_id: str) -> None:
        if (handle := self._handles.pop(sandbox_id, None)) is not None:
            await handle.detach()

    def _of(self, sandbox_id: str) -> dict[str, str]:
        return {INSTALLATION: self._installation, SANDBOX: sandbox_id}

    def _order(self, spec: SandboxSpec) -> MachineRequest:
        metadata = MachineMetadata.of(spec).metadata(self._installation)
        return MachineRequest(
            spec.sandbox_id, spec.template_id, metadata, self._lease_seconds, spec.egress, spec.resources
        )

    def _check(self, spec: SandboxSpec) -> None:
        """Raise for requirements that the vendor cannot meet."""
        title = self._vendor.title
        if spec.mounts:
            raise errors.ConfinementUnavailable(f"A machine at {title} cannot mount directories of this host.")
        report = self._vendor.isolation()
        if spec.isolation is not None and (report is None or report.level.rank < spec.isolation.rank):
            raise errors.ConfinementUnavailable(
                f"{title} does not promise the isolation level {spec.isolation.value!r} here."
            )


def _first_of_each(machines: Iterable[VendorMachine]) -> list[VendorMachine]:
    first: dict[str, VendorMachine] = {}
    for machine in sorted(machines, key=lambda one: (one.started_at, one.reference)):
        if sandbox_id := machine.metadata.get(SANDBOX):
            first.setdefault(sandbox_id, machine)
    return list(first.values())


def _check_size(vendor: Vendor, spec: SandboxSpec, machine: VendorMachine) -> None:
    """A machine's size is that of its template; raise if it is smaller than requested."""
    wanted = spec.resources
    if machine.cpu < wanted.cpu or machine.memory_mb < wanted.memory_mb:
        raise errors.Unsupported(
            f"Machines of the template {spec.template_id!r} at {vendor.title} have {machine.cpu:g} cores and "
            f"{machine.memory_mb} MiB; {wanted.cpu:g} and {wanted.memory_mb} were asked for. Ask for less, or name a "
            "larger template."
        )
