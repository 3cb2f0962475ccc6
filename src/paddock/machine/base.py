"""The Machine: everything that can be done inside one sandbox, the same words on every provider.

A provider gets machines; a Machine acts inside one. REST, E2B's envd protocol, Daytona's toolbox, MCP tools and
the CLI are all written on this interface, so what one provider can do, every surface can show.

Promises every implementation keeps (``tests/conformance`` holds them to it):

- ``spawn`` is idempotent by ``process_id``: the same id never starts a second process.
- Output is kept in a bounded spool per stream, readable from any offset, also after the process ended and after the
  server restarted. When the spool is full the oldest bytes go; offsets keep counting and ``OutputChunk.offset`` tells
  where the data really begins.
- ``signal`` reaches the whole process group; ``hard_timeout`` kills it.
- File operations have the rights of ``user``: a name of the sandbox's own, or ``root``.
- Paths are absolute inside the sandbox. No symlink, ``..`` or race leads out of it.
- Errors come from :mod:`paddock.errors` (``ProcessNotFound``, ``PathNotFound``, ``PathConflict``, ``PathDenied``…).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, Self

from paddock.paths import WORKSPACE as WORKSPACE

DEFAULT_USER = "user"

ATTRIBUTES = "user.e2b."
"""How the names of extended attributes begin in which the attributes of a file are kept: E2B's tools look there."""

MAX_NOTE = 64 * 1024
"""Bytes of the note that can be kept with a process."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class ProcessStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """Ended by itself; see ``exit_code``."""
    TIMED_OUT = "timed_out"
    """Killed by its hard timeout."""
    KILLED = "killed"
    """Ended by a signal."""
    LOST = "lost"
    """Its machine was restarted under it; the output is kept, the exit code is not known."""


@dataclass(frozen=True, slots=True)
class TerminalSize:
    rows: int = 24
    cols: int = 80


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    process_id: str
    argv: Sequence[str]
    cwd: str = WORKSPACE
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the sandbox's own environment; wins over it."""
    user: str = DEFAULT_USER
    terminal: TerminalSize | None = None
    """Run on a PTY of this size; its output is all on ``stdout``."""
    stdin: bool = False
    """Keep a pipe open for ``write_stdin``. Without it the process reads an empty input."""
    hard_timeout: float | None = None
    label: str = ""
    """What a person typed, for listings."""
    note: bytes = b""
    """What the one who starts it wants to find again (``Machine.note``), also after a restart of the server."""
    strict: bool = False
    """A program that is not there, or cannot be run, is refused (``Invalid``) instead of ending with 127 or 126."""
    shortcut: Sequence[str] = ()
    """Words that do what ``argv``, a shell with a command, does. A machine may run them instead, if nothing differs."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    process_id: str
    status: ProcessStatus
    exit_code: int | None
    """As a shell would say it: 128 + n after signal n. None while it runs, or when it is not known."""
    pid: int | None
    label: str
    started_at: float
    ended_at: float | None
    stdout_size: int
    """Bytes written so far, also those that the spool no longer holds."""
    stderr_size: int
    terminal: bool

    @property
    def running(self) -> bool:
        return self.status is ProcessStatus.RUNNING


@dataclass(frozen=True, slots=True)
class OutputChunk:
    stream: Stream
    offset: int
    """Where ``data`` begins. Larger than the offset asked for when the spool had dropped bytes before it."""
    data: bytes
    skipped: int = 0
    """Bytes before ``offset`` that were asked for and are kept no more. A chunk may say this alone, without data."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """What is kept of a process's output, and how long it waits for somebody who follows it."""

    spool: int = 16 << 20
    """Bytes of each stream; at least half of it is kept at any time."""
    hold_seconds: float = 60.0
    """A follower that takes nothing for so long, while the process waits for it, is not waited for any more."""


class FileType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileInfo:
    path: str
    name: str
    type: FileType
    size: int
    mode: int
    """Permission bits only."""
    owner: str
    group: str
    modified_at: float
    symlink_target: str | None = None


class FileChange(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    REMOVED = "removed"


class FileAct(StrEnum):
    """What was done, where ``FileChange`` tells what has become of the file."""

    CREATE = "create"
    """Made, or moved here."""
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    """Moved away from here."""
    CHMOD = "chmod"
    """Its owner, permissions, times or attributes."""


_USUAL_ACTS = {
    FileChange.CREATED: FileAct.CREATE,
    FileChange.MODIFIED: FileAct.WRITE,
    FileChange.REMOVED: FileAct.REMOVE,
}


@dataclass(frozen=True, slots=True)
class FileEvent:
    path: str
    change: FileChange
    act: FileAct | None = field(default=None, compare=False)
    """None: the usual one for this change. Two events of a file are the same whatever was done to it."""

    @property
    def done(self) -> FileAct:
        return self.act or _USUAL_ACTS[self.change]


class Watch(ABC):
    """Changes below a directory as they come, until that directory itself is gone. For one consumer."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> FileEvent: ...

    @abstractmethod
    async def settled(self) -> list[FileEvent]:
        """Those not taken yet, without waiting for more: everything that was done before this call is among them."""


@dataclass(frozen=True, slots=True)
class MachineStats:
    at: float
    cpu_count: float
    cpu_seconds: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int
    process_count: int
    memory_cache: int = 0
    """Page cache, which is not part of what is used: the kernel gives it back when asked."""


class Connection(Protocol):
    """A byte stream to a port inside the sandbox."""

    async def read(self, limit: int = 65536) -> bytes:
        """Some bytes; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def end_write(self) -> None:
        """Half-close: nothing more will be written."""

    async def close(self) -> None: ...


class Machine(ABC):
    """One sandbox from the inside. Cheap to hold; safe for concurrent use."""

    sandbox_id: str

    # Processes

    @abstractmethod
    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        """Start a process, or answer with the one that already has this id."""

    @abstractmethod
    async def processes(self) -> list[ProcessInfo]:
        """Every process started through ``spawn`` that is still remembered, oldest first."""

    @abstractmethod
    async def process(self, process_id: str) -> ProcessInfo: ...

    @abstractmethod
    async def wait(self, process_id: str, timeout: float | None = None) -> ProcessInfo:
        """The process as it is when it ended, or when ``timeout`` seconds have passed, whichever comes first."""

    @abstractmethod
    async def read_output(self, process_id: str, stream: Stream, offset: int = 0, limit: int = 1 << 20) -> OutputChunk:
        """What the spool holds from ``offset`` on; empty when there is nothing (yet)."""

    @abstractmethod
    def follow(
        self, process_id: str, stdout_offset: int = 0, stderr_offset: int = 0, *, linger: bool = False
    ) -> AsyncIterator[OutputChunk]:
        """Chunks as they come, from these offsets on, until the process has ended and everything was given.

        Whoever takes them in time misses none: the process waits for it, as with a pipe. What is missed is told.
        ``linger``: until everybody has closed its streams, also the children that it left behind; unless it was ended
        from outside (a hard timeout, or SIGTERM or SIGKILL to the process alone), for then nobody waits for them.
        """

    async def begin(self, spec: ProcessSpec, *, linger: bool = True) -> AsyncGenerator[ProcessInfo | OutputChunk, None]:
        """Spawn and follow: first the process, then its output as it comes, at last the process as it ended.

        One call, so that a machine that can do it in one round trip does. Whoever stops listening does not end it.
        """
        info = await self.spawn(spec)
        yield info
        chunks = self.follow(spec.process_id, linger=linger)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        yield await self.process(spec.process_id)

    @abstractmethod
    async def note(self, process_id: str) -> bytes:
        """What was kept with it when it was started."""

    @abstractmethod
    async def write_stdin(self, process_id: str, data: bytes) -> None: ...

    @abstractmethod
    async def close_stdin(self, process_id: str) -> None: ...

    @abstractmethod
    async def signal(self, process_id: str, signal: int, *, group: bool = True) -> None:
        """To the whole process group, or to the process alone."""

    @abstractmethod
    async def resize(self, process_id: str, size: TerminalSize) -> None: ...

    async def run(
        self, spec: ProcessSpec, timeout: float | None = None, limit: int = 1 << 20
    ) -> tuple[ProcessInfo, OutputChunk, OutputChunk]:
        """Spawn, wait (as long as ``timeout``), and the first ``limit`` bytes that the spool holds of each stream.

        One call, so that a machine that can do it in one round trip does.
        """
        info = await self.spawn(spec)
        if info.running:
            info = await self.wait(spec.process_id, timeout)
        # The sizes are from before the reads, so they are never ahead of what was read.
        stdout = await self._gather(info, Stream.STDOUT, limit)
        return info, stdout, await self._gather(info, Stream.STDERR, limit)

    async def _gather(self, info: ProcessInfo, stream: Stream, limit: int) -> OutputChunk:
        size = info.stdout_size if stream is Stream.STDOUT else info.stderr_size
        gathered = OutputChunk(stream, 0, b"")
        while len(gathered.data) < limit and (info.running or gathered.end < size):
            chunk = await self.read_output(info.process_id, stream, gathered.end, limit - len(gathered.data))
            if gathered.data and chunk.skipped:
                break  # the spool dropped what lay between: whoever reads on is told
            gathered = chunk if chunk.skipped else replace(gathered, data=gathered.data + chunk.data)
            if not chunk.data:
                break
        return gathered

    # Files

    @abstractmethod
    async def stat(self, path: str, *, follow: bool = False, user: str = DEFAULT_USER) -> FileInfo:
        """Of a symlink itself, or with ``follow`` of what it stands for."""

    @abstractmethod
    async def resolve(self, path: str, *, user: str = DEFAULT_USER) -> FileInfo:
        """What a path stands for in the end, with the path that has no symlink in it."""

    @abstractmethod
    async def attributes(self, paths: Sequence[str], *, user: str = DEFAULT_USER) -> list[dict[str, str]]:
        """What is pinned to each of these files (see ``write_file``); nothing where one cannot be looked at."""

    @abstractmethod
    async def list_directory(self, path: str, depth: int = 1, *, user: str = DEFAULT_USER) -> list[FileInfo]:
        """Entries below ``path``, sorted by path; symlinks are listed, not followed."""

    @abstractmethod
    def read_file(
        self, path: str, offset: int = 0, limit: int | None = None, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[bytes]:
        """The file's bytes, streamed. Raises before the first byte, never in the place of an empty file."""

    @abstractmethod
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
        """Create or replace a file and its missing parents. ``atomic``: readers see the old or the new, never half.

        ``owner``: whose the file and what is made above it become; else the user's, or what they were.
        ``attributes`` take the place of all that were pinned to it; None leaves those alone.
        Written in place, a watch sees in this order: created, its owner set, its attributes set, written.
        """

    @abstractmethod
    async def make_directory(self, path: str, user: str = DEFAULT_USER, *, owner: str | None = None) -> bool:
        """With missing parents. False when it was there already. ``owner`` as in ``write_file``."""

    @abstractmethod
    async def move(self, source: str, destination: str, *, user: str = DEFAULT_USER) -> FileInfo: ...

    @abstractmethod
    async def remove(self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER) -> None: ...

    @abstractmethod
    def watch(
        self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER
    ) -> AbstractAsyncContextManager[Watch]:
        """Changes below a directory from the moment the context is entered."""

    # Ports and usage

    @abstractmethod
    async def dial(self, port: int) -> Connection:
        """A connection to ``127.0.0.1:port`` inside the sandbox."""

    @abstractmethod
    async def stats(self) -> MachineStats: ...
