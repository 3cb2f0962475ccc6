"""One sandbox of the fake provider from the inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from paddock import errors
from paddock.clock import Clock
from paddock.machine.base import (
    DEFAULT_USER,
    Connection,
    FileInfo,
    Machine,
    MachineStats,
    OutputChunk,
    ProcessInfo,
    ProcessSpec,
    Stream,
    TerminalSize,
    Watch,
)
from paddock.machine.threads import in_thread
from paddock.providers.fake import ports, transfer, usage, watch
from paddock.providers.fake.faults import Faults, with_faults
from paddock.providers.fake.files import Files
from paddock.providers.fake.folder import Folder
from paddock.providers.fake.namespaces import Namespaces
from paddock.providers.fake.processes import USERS, Processes


@with_faults(*sorted(Machine.__abstractmethods__))
class FakeMachine(Machine):
    """Holds nothing that needs closing: all state is in the sandbox's folder and with its keeper."""

    def __init__(self, folder: Folder, namespaces: Namespaces, clock: Clock, faults: Faults) -> None:
        self.sandbox_id = folder.sandbox_id
        self.faults = faults
        self._folder = folder
        self._namespaces = namespaces
        self._clock = clock
        self._files = Files(folder.root)
        self._processes = Processes(folder, namespaces, self._files, clock)

    # Processes

    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        return await self._processes.spawn(spec)

    async def processes(self) -> list[ProcessInfo]:
        return await self._processes.processes()

    async def process(self, process_id: str) -> ProcessInfo:
        return await self._processes.process(process_id)

    async def wait(self, process_id: str, timeout: float | None = None) -> ProcessInfo:
        return await self._processes.wait(process_id, timeout)

    async def read_output(self, process_id: str, stream: Stream, offset: int = 0, limit: int = 1 << 20) -> OutputChunk:
        return await self._processes.read_output(process_id, stream, offset, limit)

    async def follow(
        self, process_id: str, stdout_offset: int = 0, stderr_offset: int = 0, *, linger: bool = False
    ) -> AsyncIterator[OutputChunk]:
        async for chunk in self._processes.follow(process_id, stdout_offset, stderr_offset, linger):
            yield chunk

    async def note(self, process_id: str) -> bytes:
        return self._processes.note(process_id)

    async def write_stdin(self, process_id: str, data: bytes) -> None:
        await self._processes.write_stdin(process_id, data)

    async def close_stdin(self, process_id: str) -> None:
        await self._processes.close_stdin(process_id)

    async def signal(self, process_id: str, signal: int, *, group: bool = True) -> None:
        await self._processes.signal(process_id, signal, group)

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        await self._processes.resize(process_id, size)

    # Files

    async def stat(self, path: str, *, follow: bool = False, user: str = DEFAULT_USER) -> FileInfo:
        _check_user(user)
        return self._files.stat(path, follow=follow)

    async def resolve(self, path: str, *, user: str = DEFAULT_USER) -> FileInfo:
        _check_user(user)
        return self._files.resolve(path)

    async def attributes(self, paths: Sequence[str], *, user: str = DEFAULT_USER) -> list[dict[str, str]]:
        _check_user(user)
        return await in_thread(lambda: [self._files.attributes(path) for path in paths])

    async def list_directory(self, path: str, depth: int = 1, *, user: str = DEFAULT_USER) -> list[FileInfo]:
        _check_user(user)
        return await in_thread(self._files.list_directory, path, depth)

    async def read_file(
        self, path: str, offset: int = 0, limit: int | None = None, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[bytes]:
        _check_user(user)
        async for chunk in transfer.read_stream(self._files.root, path, offset, limit):
            yield chunk

    async def write_file(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        atomic: bool = True,
        user: str = DEFAULT_USER,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        _check_user(user, owner)
        how = transfer.How(mode, atomic, owned=owner is not None, attributes=attributes)
        return await transfer.write_stream(self._files.root, path, chunks, how)

    async def make_directory(self, path: str, user: str = DEFAULT_USER, *, owner: str | None = None) -> bool:
        _check_user(user, owner)
        return self._files.make_directory(path)

    async def move(self, source: str, destination: str, *, user: str = DEFAULT_USER) -> FileInfo:
        _check_user(user)
        return self._files.move(source, destination)

    async def remove(self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER) -> None:
        _check_user(user)
        await in_thread(self._files.remove, path, recursive)

    def watch(
        self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER
    ) -> AbstractAsyncContextManager[Watch]:
        _check_user(user)
        return watch.watching(self._files.root, path, recursive)

    # Ports and usage

    async def dial(self, port: int) -> Connection:
        return await ports.dial(self._namespaces, port)

    async def stats(self) -> MachineStats:
        return await in_thread(usage.measure, self._folder, self._namespaces, self._processes, self._clock)


def _check_user(user: str, owner: str | None = None) -> None:
    """They all share one id, so whose a file becomes makes no difference."""
    for name in (user, owner or user):
        if name not in USERS:
            raise errors.Invalid(f"There is no user {name!r} in this sandbox, only {' and '.join(USERS)}.")
