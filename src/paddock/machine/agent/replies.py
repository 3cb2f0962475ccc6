"""Decodes the agent's replies into the types of :mod:`paddock.machine.base`; every value is validated."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.wire import MAX_BULK, MAX_DATA, MAX_PAYLOAD, ProtocolError, Reader
from paddock.machine.base import (
    ATTRIBUTES,
    FileAct,
    FileChange,
    FileEvent,
    FileInfo,
    FileType,
    OutputChunk,
    ProcessInfo,
    ProcessStatus,
    Stream,
)

STREAMS: Final = {Stream.STDOUT: 1, Stream.STDERR: 2}

_STREAMS: Final = {1: Stream.STDOUT, 2: Stream.STDERR}
_STATUSES: Final = {
    1: ProcessStatus.RUNNING,
    2: ProcessStatus.COMPLETED,
    3: ProcessStatus.TIMED_OUT,
    4: ProcessStatus.KILLED,
    5: ProcessStatus.LOST,
}
_TYPES: Final = {1: FileType.FILE, 2: FileType.DIRECTORY, 3: FileType.SYMLINK, 4: FileType.OTHER}
_CHANGES: Final = {
    1: (FileChange.CREATED, FileAct.CREATE),
    2: (FileChange.MODIFIED, FileAct.WRITE),
    3: (FileChange.REMOVED, FileAct.REMOVE),
    4: (FileChange.REMOVED, FileAct.RENAME),
    5: (FileChange.MODIFIED, FileAct.CHMOD),
    6: (FileChange.MODIFIED, FileAct.CREATE),
}

MAX_PATH: Final = 64 * 1024
"""Paths below a directory may be longer than the kernel accepts in one call."""
SMALLEST_PROCESS: Final = 50
SMALLEST_ENTRY: Final = 45
_STATE = struct.Struct("<Bii")
_TIMES_AND_SIZES = struct.Struct("<QQQQB")
_MAX_ID = 256
_MAX_NAME = 4096
_MAX_ATTRIBUTE = 64 * 1024
_SMALLEST_COUNT = 4
_SMALLEST_ATTRIBUTE = 8
_NO_SIZE = 1 << 63
_LAST_DAY = 253_402_214_400 * 1_000_000
"""The last day of the year 9999: file times may be later, but dates in responses cannot."""


class FileEntry(NamedTuple):
    """A file as reported by the agent, with its path as bytes."""

    path: bytes
    info: FileInfo


class AgentUsage(NamedTuple):
    cpu_seconds: float
    memory: int
    disk_used: int
    disk_total: int
    processes: int


def read_refusal(body: Reader) -> AgentRefusal:
    number, message = body.i32(), body.text(MAX_PAYLOAD)
    body.end()
    return AgentRefusal(number, message[:1000])


def read_process(body: Reader, process_id: str | None = None) -> ProcessInfo:
    """A process; must be the one with this id, unless None."""
    found = body.text(_MAX_ID)
    if process_id is not None and found != process_id:
        raise ProtocolError("The sandbox's agent answered about another process than asked for.")
    state, code, pid = body.numbers(_STATE)
    label = body.text(MAX_PAYLOAD)
    started, ended, stdout, stderr, terminal = body.numbers(_TIMES_AND_SIZES)
    status = _STATUSES.get(state)
    if status is None or not -1 <= code <= 255 or stdout >= _NO_SIZE or stderr >= _NO_SIZE or terminal > 1:
        raise ProtocolError("The sandbox's agent sent a process in a state that does not exist.")
    running = status is ProcessStatus.RUNNING
    return ProcessInfo(
        process_id=found,
        status=status,
        exit_code=None if running or code < 0 else code,
        pid=pid if pid > 0 else None,
        label=label,
        started_at=_seconds(started),
        ended_at=None if running or not ended else _seconds(ended),
        stdout_size=stdout,
        stderr_size=stderr,
        terminal=terminal == 1,
    )


def read_processes(body: Reader) -> list[ProcessInfo]:
    return [read_process(body) for _ in range(body.count(SMALLEST_PROCESS))]


def read_data(body: Reader) -> OutputChunk:
    """A whole DATA frame."""
    stream = _STREAMS.get(body.u8())
    offset, data = _size(body), body.blob(MAX_DATA)
    body.end()
    if stream is None:
        raise ProtocolError("The sandbox's agent sent data of a stream that does not exist.")
    return OutputChunk(stream, offset, data)


def read_output(body: Reader) -> tuple[int, bytes]:
    return _size(body), body.blob(MAX_BULK)


def read_entry(body: Reader) -> FileEntry:
    path = body.name(MAX_PATH)
    kind = _TYPES.get(body.u8())
    size, mode = _size(body), body.u32()
    body.u32(), body.u32()  # uid and gid: only the names are shown
    owner, group = body.text(_MAX_NAME), body.text(_MAX_NAME)
    modified, target = body.u64(), body.text(MAX_PATH)
    if kind is None or not path.startswith(b"/") or mode > 0o7777:
        raise ProtocolError("The sandbox's agent sent a file that cannot exist.")
    shown = path.decode(errors="replace")
    info = FileInfo(
        path=shown,
        name=shown.rpartition("/")[2] or "/",
        type=kind,
        size=size,
        mode=mode,
        owner=owner,
        group=group,
        modified_at=_seconds(modified),
        symlink_target=target if kind is FileType.SYMLINK else None,
    )
    return FileEntry(path, info)


def read_event(body: Reader) -> tuple[bytes, FileEvent]:
    change = _CHANGES.get(body.u8())
    path = body.name(MAX_PATH)
    body.end()
    if change is None or not path.startswith(b"/"):
        raise ProtocolError("The sandbox's agent sent a change that cannot be.")
    return path, FileEvent(path.decode(errors="replace"), *change)


def read_attributes(body: Reader) -> list[dict[str, str]]:
    """Attributes of several files, in the order of the request; names without the common prefix."""
    return [_attributes_of_one(body) for _ in range(body.count(_SMALLEST_COUNT))]


def _attributes_of_one(body: Reader) -> dict[str, str]:
    found = {}
    for _ in range(body.count(_SMALLEST_ATTRIBUTE)):
        name, value = body.text(_MAX_NAME), body.blob(_MAX_ATTRIBUTE)
        if not name.startswith(ATTRIBUTES):
            raise ProtocolError("The sandbox's agent told of another attribute than it was asked for.")
        found[name.removeprefix(ATTRIBUTES)] = value.decode(errors="replace")
    return found


def read_usage(body: Reader) -> AgentUsage:
    return AgentUsage(body.u64() / 1e6, _size(body), _size(body), _size(body), body.u32())


def _size(body: Reader) -> int:
    found = body.u64()
    if found >= _NO_SIZE:
        raise ProtocolError("The sandbox's agent sent a size that cannot be.")
    return found


def _seconds(microseconds: int) -> float:
    """Seconds since the epoch. A file time before the epoch arrives as a huge number and becomes 0."""
    if microseconds >= _NO_SIZE:
        return 0.0
    return min(microseconds, _LAST_DAY) / 1e6
