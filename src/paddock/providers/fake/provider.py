"""The fake provider itself: sandboxes are folders, and every step is safe to repeat after a crash at any point."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.machine.base import Machine
from paddock.providers.base import Found, MachineState, Provider, SandboxSpec
from paddock.providers.fake.descriptors import in_thread
from paddock.providers.fake.faults import Faults, with_faults
from paddock.providers.fake.folder import Folder, Record, is_safe_name, remove_tree
from paddock.providers.fake.machine import FakeMachine
from paddock.providers.fake.namespaces import Namespaces
from paddock.providers.fake.view import bubblewrap_path, make_root

TEMPLATE = "host"
_CREATING = ".creating-"
_DELETING = ".deleting-"
_ABANDONED_SECONDS = 60.0


@with_faults(*sorted(Provider.__abstractmethods__))
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
        self._clock = clock or SystemClock()
        self._spool_limit = spool_limit
        self._bubblewrap = bubblewrap or bubblewrap_path()

    async def start(self) -> None:
        """Also ends what a crash left half-deleted. Asks nothing of the machine: only commands need bubblewrap."""
        await in_thread(self._clean_up)

    async def templates(self) -> list[str]:
        return [TEMPLATE]

    async def create(self, spec: SandboxSpec) -> Found:
        if not is_safe_name(spec.sandbox_id):
            raise errors.Invalid(f"{spec.sandbox_id[:100]!r} cannot be the id of a sandbox.")
        if spec.template_id != TEMPLATE:
            raise errors.TemplateNotFound(f"There is no template {spec.template_id!r}, only {TEMPLATE!r}.")
        folder = self._folder(spec.sandbox_id)
        return self._make(folder, spec).found()

    async def inspect(self, sandbox_id: str) -> Found | None:
        record = self._folder(sandbox_id).read() if is_safe_name(sandbox_id) else None
        return record.found() if record else None

    async def list(self) -> list[Found]:
        return [*await in_thread(self._list)]

    async def pause(self, sandbox_id: str) -> None:
        await in_thread(self._pause, self._known(sandbox_id))

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

    def _make(self, folder: Folder, spec: SandboxSpec) -> Record:
        """Made aside and renamed into place: it is there whole or not at all, and the first of two wins."""
        if (record := folder.read()) is not None:
            return record
        draft = Folder(self._root / f"{_CREATING}{spec.sandbox_id}-{secrets.token_hex(4)}")
        os.mkdir(draft.path, 0o700)  # noqa: PTH102
        make_root(draft.root)
        record = Record.new(spec, self._clock.now())
        draft.write(record)
        try:
            draft.path.rename(folder.path)
        except OSError:
            remove_tree(draft.path)
            return folder.existing()
        return record

    def _list(self) -> Sequence[Found]:
        try:
            names = sorted(os.listdir(self._root))  # noqa: PTH208
        except OSError as error:
            raise errors.ProviderUnavailable(f"The folder of the sandboxes cannot be read: {error}") from error
        records = (self._folder(name).read() for name in names if is_safe_name(name))
        return [record.found() for record in records if record]

    def _pause(self, folder: Folder) -> None:
        with folder.locked():
            self._namespaces(folder).stop()
            folder.set_state(MachineState.PAUSED)

    def _resume(self, folder: Folder) -> None:
        with folder.locked():
            folder.set_state(MachineState.RUNNING)
            self._namespaces(folder).go_on()

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
        for path in self._root.glob(f"{_CREATING}*"):
            try:
                abandoned = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
            except FileNotFoundError:
                continue
            if abandoned:  # younger ones may be another server's, being made right now
                remove_tree(path)
