"""The fake provider itself: sandboxes are folders, and every step is safe to repeat after a crash at any point."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport, EgressTotals
from paddock.machine.base import Machine
from paddock.machine.threads import in_thread
from paddock.providers.base import Capacity, MachineInfo, MachineState, Provider, SandboxSpec, Shape
from paddock.providers.fake.faults import Faults, with_faults
from paddock.providers.fake.folder import Folder, Record, is_safe_name, remove_tree
from paddock.providers.fake.machine import FakeMachine
from paddock.providers.fake.namespaces import Namespaces
from paddock.providers.fake.shelf import Shelf
from paddock.providers.fake.view import bubblewrap_path

TEMPLATE = "host"
_DELETING = ".deleting-"


@with_faults(*sorted(Provider.__abstractmethods__), "publish", "set_egress", "egress", "warm", "warmed", "cool")
class FakeProvider(Provider):
    name = "fake"

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        faults: Faults | None = None,
        *,
        spool_limit: int = 8 << 20,
        bubblewrap: str | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self._root = root.absolute()
        self._shelf = Shelf(self._root)
        self._clock = clock or SystemClock()
        self._spool_limit = spool_limit
        self._bubblewrap = bubblewrap or bubblewrap_path()
        self.machine_has = Capacity()
        """It limits nothing, so nothing is too much; tests say otherwise."""

    async def start(self) -> None:
        """Also ends what a crash left half-deleted. Asks nothing of the machine: only commands need bubblewrap."""
        await in_thread(self._clean_up)

    async def templates(self) -> list[str]:
        return [TEMPLATE]

    async def capacity(self) -> Capacity:
        return self.machine_has

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        if not is_safe_name(spec.sandbox_id):
            raise errors.Invalid(f"{spec.sandbox_id[:100]!r} cannot be the id of a sandbox.")
        if spec.template_id != TEMPLATE:
            raise errors.TemplateNotFound(f"There is no template {spec.template_id!r}, only {TEMPLATE!r}.")
        _check_wishes(spec)
        if (record := self._folder(spec.sandbox_id).read()) is not None:
            return record.found()
        with self._shelf.draft(spec.sandbox_id, self.shape_of(spec)) as draft:
            return await self.publish(spec, draft)

    async def publish(self, spec: SandboxSpec, draft: Folder) -> MachineInfo:
        """The last step of a create. Renamed into place: it is there whole or not at all, and the first of two wins."""
        folder, record = self._folder(spec.sandbox_id), Record.new(spec, self._clock.now())
        draft.write(record)
        try:
            draft.path.rename(folder.path)
        except OSError:
            return folder.existing().found()
        return record.found()

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        record = self._folder(sandbox_id).read() if is_safe_name(sandbox_id) else None
        return record.found() if record else None

    async def list(self) -> list[MachineInfo]:
        return [*await in_thread(self._list)]

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        await in_thread(self._pause, self._known(sandbox_id), keep_memory)

    async def resume(self, sandbox_id: str) -> None:
        await in_thread(self._resume, self._known(sandbox_id))

    async def delete(self, sandbox_id: str) -> None:
        if is_safe_name(sandbox_id):
            await in_thread(self._delete, self._folder(sandbox_id))

    async def attach(self, sandbox_id: str) -> Machine:
        folder = self._known(sandbox_id)
        if folder.existing().state is MachineState.PAUSED:
            raise errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
        return FakeMachine(folder, self._namespaces(folder), self._clock, self.faults)

    # Nothing goes out of a fake sandbox: the policy is kept, and there is never a connection to count.

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        await in_thread(self._set_egress, self._known(sandbox_id), policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        return EgressReport(self._known(sandbox_id).existing().egress, EgressTotals(), ())

    # Made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        return Shape(spec.template_id, spec.resources.disk_mb)

    async def warm(self, shape: Shape) -> None:
        await in_thread(self._shelf.put, shape)

    async def warmed(self) -> Mapping[Shape, int]:
        return await in_thread(self._shelf.stock)

    async def cool(self, shape: Shape, count: int) -> None:
        await in_thread(self._shelf.throw_away, shape, count)

    def _folder(self, sandbox_id: str) -> Folder:
        return Folder(self._root / sandbox_id)

    def _known(self, sandbox_id: str) -> Folder:
        if not is_safe_name(sandbox_id):
            raise errors.SandboxNotFound.by_id(sandbox_id)
        folder = self._folder(sandbox_id)
        folder.existing()
        return folder

    def _namespaces(self, folder: Folder) -> Namespaces:
        return Namespaces(folder, self._bubblewrap, self._spool_limit)

    def _list(self) -> Sequence[MachineInfo]:
        try:
            names = sorted(os.listdir(self._root))  # noqa: PTH208
        except OSError as error:
            raise errors.ProviderUnavailable(f"The folder of the sandboxes cannot be read: {error}") from error
        records = (self._folder(name).read() for name in names if is_safe_name(name))
        return [record.found() for record in records if record]

    def _pause(self, folder: Folder, keep_memory: bool) -> None:
        with folder.locked():
            namespaces = self._namespaces(folder)
            if keep_memory:
                namespaces.stop()
            else:
                namespaces.end()
            folder.change(state=MachineState.PAUSED)

    def _resume(self, folder: Folder) -> None:
        with folder.locked():
            folder.change(state=MachineState.RUNNING)
            self._namespaces(folder).go_on()

    def _set_egress(self, folder: Folder, policy: EgressPolicy) -> None:
        with folder.locked():
            folder.change(egress=policy)

    def _delete(self, folder: Folder) -> None:
        gone = Folder(self._root / f"{_DELETING}{folder.sandbox_id}-{secrets.token_hex(4)}")
        try:
            with folder.locked():
                folder.path.rename(gone.path)
        except (errors.SandboxNotFound, FileNotFoundError):
            self._finish_deletes(f"{folder.sandbox_id}-*")  # what a crash, or another server, is in the middle of
            return
        self._finish_delete(gone)

    def _finish_deletes(self, which: str) -> None:
        for path in self._root.glob(_DELETING + which):
            self._finish_delete(Folder(path))

    def _finish_delete(self, gone: Folder) -> None:
        self._namespaces(gone).end()
        try:
            remove_tree(gone.path)
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.ProviderUnavailable(f"Files of a deleted sandbox could not be removed: {error}") from error

    def _clean_up(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._finish_deletes("*")
        self._shelf.clean_up()


def _check_wishes(spec: SandboxSpec) -> None:
    """What is asked for is given or refused."""
    if spec.isolation is not None:
        raise errors.ConfinementUnavailable(
            "The fake provider is not a security boundary: it gives no level of isolation."
        )
    if spec.mounts:
        raise errors.ConfinementUnavailable("The fake provider cannot mount directories of the host.")
    if spec.egress.mode is EgressMode.FULL:
        raise errors.ConfinementUnavailable(
            "Nothing goes out of a sandbox of the fake provider; ask for egress none or proxy."
        )
