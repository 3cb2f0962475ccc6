"""A small client of the agent protocol, written from its document alone and independent of the server's own."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.support.waiting import PATIENCE_S

HEADER = struct.Struct("<IBBHI")

HELLO, PING = 0x01, 0x02
SPAWN, PROCESSES, PROCESS_GET, FOLLOW, READ_OUTPUT, STDIN = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
CLOSE_STDIN, SIGNAL, RESIZE, WAIT, CANCEL = 0x16, 0x17, 0x18, 0x19, 0x1F
SIGNAL_ONE, NOTE, FOLLOW_ALL, FOLLOW_WINDOW, WINDOW = 0x1A, 0x1B, 0x1C, 0x1D, 0x1E
STAT, LIST_DIR, OPEN, COMMIT, CLOSE, MKDIR, MOVE, REMOVE = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27
CHMOD, WATCH, PREAD, PWRITE, DIAL, LISTEN, LISTEN_ON = 0x28, 0x29, 0x2A, 0x2B, 0x30, 0x31, 0x32
OPEN_FOR, MKDIR_FOR, RESOLVE, ATTRIBUTES = 0x2C, 0x2D, 0x2E, 0x2F
STATS, STOP_ALL, CONTINUE_ALL, KILL_ALL = 0x40, 0x41, 0x42, 0x43
OK, HELLO_OK, PROCESS, PROCESS_LIST, DATA, ENDED, OUTPUT = 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86
ENTRY, ENTRIES, END, OPENED, MADE, EVENT, BYTES, SOCKET = 0x87, 0x88, 0x89, 0x8A, 0x8B, 0x8C, 0x8D, 0x8E
STATS_OK, COUNT, ATTRIBUTES_OK, ERROR = 0x8F, 0x90, 0x91, 0xFF

WITH_STDIN, WITH_TERMINAL, WITH_FOLLOW, WITH_FOLLOW_ALL, STRICT, WITH_NOTE = 1, 2, 4, 8, 16, 32
WITH_WINDOW = 128
READING, REPLACING, IN_PLACE = 0, 1, 2
UNCHANGED = 0xFFFFFFFF
RUNNING, COMPLETED, TIMED_OUT, KILLED, LOST = 1, 2, 3, 4, 5
STDOUT, STDERR = 1, 2
FILE, DIRECTORY, SYMLINK, OTHER = 1, 2, 3, 4
CREATED, MODIFIED, REMOVED, MOVED_AWAY, TOUCHED, REPLACED = 1, 2, 3, 4, 5, 6


def names_in(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


class Refused(Exception):
    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"{os.strerror(number)}: {message}")
        self.errno = number
        self.message = message


class Broken(Exception):
    """The agent has closed the connection."""


def raw(data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("<I", len(data)) + data


def words(items: Sequence[bytes | str]) -> bytes:
    return struct.pack("<I", len(items)) + b"".join(raw(item) for item in items)


class Payload:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize("<" + form)
        value: int = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += size
        return value

    def blob(self) -> bytes:
        length = self.number("I")
        data = self.data[self.at : self.at + length]
        assert len(data) == length
        self.at += length
        return data

    def done(self) -> None:
        assert self.at == len(self.data), "bytes left over"


@dataclass(frozen=True)
class Process:
    process_id: str
    status: int
    exit_code: int
    pid: int
    label: str
    started_us: int
    ended_us: int
    stdout_size: int
    stderr_size: int
    terminal: bool

    @classmethod
    def take(cls, p: Payload) -> Self:
        return cls(
            p.blob().decode(), p.number("B"), p.number("i"), p.number("i"), p.blob().decode(), p.number("Q"),
            p.number("Q"), p.number("Q"), p.number("Q"), bool(p.number("B")),
        )  # fmt: skip


@dataclass(frozen=True)
class Entry:
    path: bytes
    type: int
    size: int
    mode: int
    uid: int
    gid: int
    owner: str
    group: str
    modified_us: int
    target: bytes

    @classmethod
    def take(cls, p: Payload) -> Self:
        return cls(
            p.blob(), p.number("B"), p.number("Q"), p.number("I"), p.number("I"), p.number("I"),
            p.blob().decode(), p.blob().decode(), p.number("Q"), p.blob(),
        )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    type: int
    id: int
    payload: bytes
    fd: int | None


Kind = TypeVar("Kind", Process, Entry)


class Client:
    """One connection. Requests may overlap: answers are kept by their id until somebody asks for them."""

    def __init__(self, path: str, *, features: int = 1, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self._data = bytearray()
        self._fds: deque[int] = deque()
        self._frames: defaultdict[int, deque[Frame]] = defaultdict(deque)
        self._last = 0
        if greet:
            answer = self.ask(HELLO, struct.pack("<II", 1, features))
            assert answer.type == HELLO_OK
            assert struct.unpack_from("<II", answer.payload) == (1, 15)

    def close(self) -> None:
        self.socket.close()
        for fd in self._fds:
            os.close(fd)

    # Frames

    def send(self, kind: int, payload: bytes = b"", request_id: int | None = None) -> int:
        if request_id is None:
            self._last += 1
            request_id = self._last
        self.socket.sendall(HEADER.pack(len(payload), kind, 0, 0, request_id) + payload)
        return request_id

    def next(self, request_id: int) -> Frame:
        while not self._frames[request_id]:
            frame = self._receive()
            self._frames[frame.id].append(frame)
        return self._frames[request_id].popleft()

    def answer(self, request_id: int) -> Frame:
        frame = self.next(request_id)
        if frame.type == ERROR:
            p = Payload(frame.payload)
            number, message = p.number("i"), p.blob().decode()
            p.done()
            raise Refused(number, message)
        return frame

    def ask(self, kind: int, payload: bytes = b"") -> Frame:
        return self.answer(self.send(kind, payload))

    def _receive(self) -> Frame:
        self._fill(HEADER.size)
        length, kind, fds, reserved, request_id = HEADER.unpack_from(self._data)
        assert reserved == 0 and fds <= 1 and length <= 1114112
        self._fill(HEADER.size + length)
        payload = bytes(self._data[HEADER.size : HEADER.size + length])
        del self._data[: HEADER.size + length]
        return Frame(kind, request_id, payload, self._fds.popleft() if fds else None)

    def _fill(self, size: int) -> None:
        while len(self._data) < size:
            try:
                data, control, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_SPACE(4 * 16))
            except ConnectionResetError:
                raise Broken from None
            for level, kind, fds in control:
                assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
                numbers = array.array("i")
                numbers.frombytes(fds[: len(fds) - len(fds) % 4])
                self._fds.extend(numbers)
            if not data:
                raise Broken
            self._data += data

    def is_broken(self) -> bool:
        """Waits until the agent has hung up; anything it still says is an answer to what came before."""
        try:
            while True:
                self._receive()
        except Broken:
            return True

    # Processes

    def spawn_payload(
        self, process_id: str, argv: Sequence[bytes | str], *, env: Sequence[str] = (), cwd: str = "/",
        user: str = "user", flags: int = 0, rows: int = 0, cols: int = 0, timeout_ms: int = 0,
        spool: int = 1 << 20, label: str = "",
    ) -> bytes:  # fmt: skip
        numbers = struct.pack("<BHHQQ", flags, rows, cols, timeout_ms, spool)
        return raw(process_id) + words(argv) + words(env) + raw(cwd) + raw(user) + numbers + raw(label)

    def spawn(self, process_id: str, argv: Sequence[bytes | str], **options: Any) -> Process:
        frame = self.ask(SPAWN, self.spawn_payload(process_id, argv, **options))
        assert frame.type == PROCESS
        return one(Process, frame)

    def shell(self, process_id: str, script: str, **options: Any) -> Process:
        return self.spawn(process_id, ["/bin/sh", "-c", script], **options)

    def wait(self, process_id: str) -> Process:
        frame = self.ask(WAIT, raw(process_id))
        assert frame.type == ENDED
        return one(Process, frame)

    def process(self, process_id: str) -> Process:
        return one(Process, self.ask(PROCESS_GET, raw(process_id)))

    def processes(self) -> list[Process]:
        p = Payload(self.ask(PROCESSES).payload)
        found = [Process.take(p) for _ in range(p.number("I"))]
        p.done()
        return found

    def output(self, process_id: str, stream: int = STDOUT, offset: int = 0, limit: int = 1 << 20) -> tuple[int, bytes]:
        p = Payload(self.ask(READ_OUTPUT, raw(process_id) + struct.pack("<BQI", stream, offset, limit)).payload)
        begin, data = p.number("Q"), p.blob()
        p.done()
        return begin, data

    def everything(self, process_id: str, stream: int = STDOUT) -> bytes:
        """All that the spool holds."""
        whole, at = b"", 0
        while (part := self.output(process_id, stream, at))[1]:
            whole += part[1]
            at = part[0] + len(part[1])
        return whole

    def run(self, process_id: str, script: str, **options: Any) -> tuple[Process, bytes, bytes]:
        self.shell(process_id, script, **options)
        ended = self.wait(process_id)
        return ended, self.everything(process_id), self.everything(process_id, STDERR)

    def follow(self, process_id: str, stdout: int = 0, stderr: int = 0) -> int:
        return self.send(FOLLOW, raw(process_id) + struct.pack("<QQ", stdout, stderr))

    def followed(self, request_id: int) -> tuple[list[tuple[int, int, bytes]], Process]:
        """(stream, offset, data) as they came, and the end."""
        pieces = []
        while (frame := self.answer(request_id)).type == DATA:
            pieces.append(piece(frame))
        assert frame.type == ENDED
        return pieces, one(Process, frame)

    def until(self, process_id: str, text: bytes) -> bytes:
        """Follows until this was written."""
        request, seen = self.follow(process_id), b""
        while text not in seen:
            frame = self.answer(request)
            assert frame.type == DATA, f"ended without {text!r}: {seen!r}"
            seen += piece(frame)[2]
        self.send(CANCEL, struct.pack("<I", request))
        while self.next(request).type == DATA:
            pass
        return seen

    # Files

    def stat(self, path: bytes | str, follow: bool = False, user: str = "user") -> Entry:
        return one(Entry, self.ask(STAT, raw(user) + raw(path) + bytes([follow])))

    def listing(
        self, path: bytes | str, depth: int = 1, limit: int = 1 << 20, user: str = "user"
    ) -> tuple[list[Entry], bool]:
        request = self.send(LIST_DIR, raw(user) + raw(path) + struct.pack("<II", depth, limit))
        found: list[Entry] = []
        while (frame := self.answer(request)).type == ENTRIES:
            p = Payload(frame.payload)
            found += [Entry.take(p) for _ in range(p.number("I"))]
            p.done()
        assert frame.type == END
        total, truncated = struct.unpack("<IB", frame.payload)
        assert total == len(found)
        return found, bool(truncated)

    def open(
        self, path: bytes | str, how: int = READING, mode: int = UNCHANGED, user: str = "user"
    ) -> tuple[int, int | None, Entry]:
        frame = self.ask(OPEN, raw(user) + raw(path) + struct.pack("<BI", how, mode))
        p = Payload(frame.payload)
        token, entry = p.number("I"), Entry.take(p)
        p.done()
        return token, frame.fd, entry

    def put(
        self, path: bytes | str, data: bytes, how: int = REPLACING, mode: int = UNCHANGED, user: str = "user"
    ) -> Entry:
        token, fd, _ = self.open(path, how, mode, user)
        assert fd is not None
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        return one(Entry, self.ask(COMMIT, struct.pack("<I", token)))

    def get(self, path: bytes | str, user: str = "user") -> bytes:
        token, fd, _ = self.open(path, user=user)
        assert fd is not None
        with os.fdopen(fd, "rb") as file:
            data = file.read()
        assert self.ask(CLOSE, struct.pack("<I", token)).type == OK
        return data

    def mkdir(self, path: bytes | str, mode: int = UNCHANGED, user: str = "user") -> bool:
        frame = self.ask(MKDIR, raw(user) + raw(path) + struct.pack("<I", mode))
        assert frame.type == MADE
        return frame.payload == b"\1"

    def move(self, source: bytes | str, destination: bytes | str, user: str = "user") -> Entry:
        return one(Entry, self.ask(MOVE, raw(user) + raw(source) + raw(destination)))

    def remove(self, path: bytes | str, recursive: bool = False, user: str = "user") -> None:
        assert self.ask(REMOVE, raw(user) + raw(path) + bytes([recursive])).type == OK

    def chmod(self, path: bytes | str, mode: int, user: str = "user") -> Entry:
        return one(Entry, self.ask(CHMOD, raw(user) + raw(path) + struct.pack("<I", mode)))

    def watch(self, path: bytes | str, recursive: bool = False, user: str = "user") -> int:
        request = self.send(WATCH, raw(user) + raw(path) + bytes([recursive]))
        assert self.answer(request).type == OK
        return request

    def event(self, request: int) -> tuple[int, str]:
        frame = self.answer(request)
        assert frame.type == EVENT
        p = Payload(frame.payload)
        event = p.number("B"), p.blob().decode()
        p.done()
        return event


def piece(frame: Frame) -> tuple[int, int, bytes]:
    p = Payload(frame.payload)
    found = p.number("B"), p.number("Q"), p.blob()
    p.done()
    assert len(found[2]) <= 65536
    return found


def one(kind: type[Kind], frame: Frame) -> Kind:
    p = Payload(frame.payload)
    found = kind.take(p)
    p.done()
    return found
