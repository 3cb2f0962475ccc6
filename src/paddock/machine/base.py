"""The Machine interface: everything that can be done inside one sandbox, the same on every provider.

A provider manages machines; a Machine operates inside one. REST, E2B's envd protocol, Daytona's toolbox, MCP tools and
the CLI are all written against this interface, so every feature of it is available on every API.

Every implementation guarantees (tested by ``tests/conformance``):

- ``spawn`` is idempotent by ``process_id``: the same id never starts a second process.
- Output is kept in a bounded spool per stream, readable from any offset, also after the process has ended and after a
  server
  restart. When the spool is full the oldest bytes are dropped; offsets keep counting, and ``OutputChunk.offset`` tells
  where the data begins.
- ``signal`` reaches the whole process group; ``hard_timeout`` kills it.
- File operations have the permissions of ``user``: a user name of the sandbox, or ``root``.
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
"""Prefix of the extended attributes that hold a file's attributes: E2B's tools look for it."""

MAX_NOTE = 64 * 1024
"""Maximum size in bytes of the note stored with a process."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class ProcessStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """Exited; see ``exit_code``."""
    TIMED_OUT = "timed_out"
    """Killed by its hard timeout."""
    KILLED = "killed"
    """Ended by a signal."""
    LOST = "lost"
    """Its machine was restarted; the output is kept, the exit code is unknown."""


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
    """Added to the sandbox's own environment, and overrides it."""
    user: str = DEFAULT_USER
    terminal: TerminalSize | None = None
    """Run on a PTY of this size; all output is then on ``stdout``."""
    stdin: bool = False
    """Keep a pipe open for ``write_stdin``. Without it the process reads an empty input."""
    hard_timeout: float | None = None
    label: str = ""
    """Text shown in listings, such as the command as typed."""
    note: bytes = b""
    """Opaque data of the caller, readable by ``Machine.note`` also after a server restart."""
    strict: bool = False
    """Refuse a program that is missing or not executable (``Invalid``) instead of ending with exit code 127 or 126."""
    shortcut: Sequence[str] = ()
    """Arguments equivalent to ``argv``, a shell with a command. A machine may run them instead if nothing differs."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    process_id: str
    status: ProcessStatus
    exit_code: int | None
    """As in a shell: 128 + n after signal n. None while it runs, or if unknown."""
    pid: int | None
    label: str
    started_at: float
    ended_at: float | None
    stdout_size: int
    """Bytes written so far, including those that the spool has dropped."""
    stderr_size: int
    terminal: bool

    @property
    def running(self) -> bool:
        return self.status is ProcessStatus.RUNNING


@dataclass(frozen=True, slots=True)
class OutputChunk:
    stream: Stream
    offset: int
    """Where ``data`` begins. Larger than the requested offset if the spool has dropped bytes before it."""
    data: bytes
    skipped: int = 0
    """Number of requested bytes before ``offset`` that were dropped. A chunk may report this alone, without data."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much of a process's output is kept, and how long the process waits for a follower."""

    spool: int = 16 << 20
    """Bytes per stream; at least half of it is kept at any time."""
    hold_seconds: float = 60.0
    """A follower that consumes nothing for this long, while the process waits for it, is not waited for any more."""


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
    """The operation, where ``FileChange`` gives its result."""

    CREATE = "create"
    """Created, or moved here."""
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    """Moved away from here."""
    CHMOD = "chmod"
    """Its owner, permissions, times or attributes were changed."""


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
    """None: the usual operation for this change. Not part of equality."""

    @property
    def done(self) -> FileAct:
        return self.act or _USUAL_ACTS[self.change]


class Watch(ABC):
    """Changes below a directory as they happen, until the directory itself is removed. For one consumer."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> FileEvent: ...

    @abstractmethod
    async def settled(self) -> list[FileEvent]:
        """Pending events, without waiting for more. Includes everything done before this call."""


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
    """Page cache, not included in ``memory_used``: the kernel can reclaim it."""


class Connection(Protocol):
    """A byte stream to a port inside the sandbox."""

    async def read(self, limit: int = 65536) -> bytes:
        """Some bytes; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def end_write(self) -> None:
        """Half-close: nothing more will be written."""

    async def close(self) -> None: ...


class Machine(ABC):
    """One sandbox from the inside. Cheap to keep; safe for concurrent use."""

    sandbox_id: str

    # Processes

    @abstractmethod
    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        """Start a process, or return the existing one with this id."""

    @abstractmethod
    async def processes(self) -> list[ProcessInfo]:
        """Every process started by ``spawn`` that is still known, oldest first."""

    @abstractmethod
    async def process(self, process_id: str) -> ProcessInfo: ...

    @abstractmethod
    async def wait(self, process_id: str, timeout: float | None = None) -> ProcessInfo:
        """The process when it has ended, or when ``timeout`` seconds have passed, whichever comes first."""

    @abstractmethod
    async def read_output(self, process_id: str, stream: Stream, offset: int = 0, limit: int = 1 << 20) -> OutputChunk:
        """Output in the spool from ``offset`` on; empty if there is none (yet)."""

    @abstractmethod
    def follow(
        self, process_id: str, stdout_offset: int = 0, stderr_offset: int = 0, *, linger: bool = False
    ) -> AsyncIterator[OutputChunk]:
        """Chunks as they are written, from these offsets on, until the process has ended and all output was delivered.

        A follower that keeps up misses nothing: the process waits for it, as with a pipe. Dropped output is reported.
        ``linger``: continue until all holders of its streams have closed them, including children left behind; unless
        it was ended from outside (a hard timeout, or SIGTERM or SIGKILL to the process alone), since children are not
        waited for then.
        """

    async def begin(self, spec: ProcessSpec, *, linger: bool = True) -> AsyncGenerator[ProcessInfo | OutputChunk, None]:
        """Spawn and follow: first the process, then its output as it is written, finally the process as it ended.

        One call, so that a machine can do it in one round trip. Closing the generator does not end the process.
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
        """The note stored with the process when it was started."""

    @abstractmethod
    async def write_stdin(self, process_id: str, data: bytes) -> None: ...

    @abstractmethod
    async def close_stdin(self, process_id: str) -> None: ...

    @abstractmethod
    async def signal(self, process_id: str, signal: int, *, group: bool = True) -> None:
        """Send a signal to the whole process group, or to the process alone."""

    @abstractmethod
    async def resize(self, process_id: str, size: TerminalSize) -> None: ...

    async def run(
        self, spec: ProcessSpec, timeout: float | None = None, limit: int = 1 << 20
    ) -> tuple[ProcessInfo, OutputChunk, OutputChunk]:
        """Spawn, wait up to ``timeout``, and return the first ``limit`` bytes that the spool holds of each stream.

        One call, so that a machine can do it in one round trip.
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
                break  # the spool dropped what lay in between; a later read reports that
            gathered = chunk if chunk.skipped else replace(gathered, data=gathered.data + chunk.data)
            if not chunk.data:
                break
        return gathered

    # Files

    @abstractmethod
    async def stat(self, path: str, *, follow: bool = False, user: str = DEFAULT_USER) -> FileInfo:
        """Stat a path; a symlink is not followed unless ``follow``."""

    @abstractmethod
    async def resolve(self, path: str, *, user: str = DEFAULT_USER) -> FileInfo:
        """Resolve all symlinks of a path and stat the result."""

    @abstractmethod
    async def attributes(self, paths: Sequence[str], *, user: str = DEFAULT_USER) -> list[dict[str, str]]:
        """Attributes stored with each file (see ``write_file``); empty for a file that cannot be read."""

    @abstractmethod
    async def list_directory(self, path: str, depth: int = 1, *, user: str = DEFAULT_USER) -> list[FileInfo]:
        """Entries below ``path``, sorted by path; symlinks are listed, not followed."""

    @abstractmethod
    def read_file(
        self, path: str, offset: int = 0, limit: int | None = None, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[bytes]:
        """Stream the file's bytes. Errors are raised before the first byte, never reported as an empty file."""

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
        """Create or replace a file, with missing parents. ``atomic``: readers see the old or the new content, never a
        mix.

        ``owner``: owner of the file and of created parents; by default the user, or unchanged for an existing file.
        ``attributes`` replace all attributes of the file; None leaves them unchanged. If written in place, a watch
        reports in this order: created, owner set, attributes set, written.
        """

    @abstractmethod
    async def make_directory(self, path: str, user: str = DEFAULT_USER, *, owner: str | None = None) -> bool:
        """Create a directory with missing parents. False if it existed. ``owner`` as in ``write_file``."""

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
