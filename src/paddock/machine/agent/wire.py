"""Frames of the agent protocol: written within its limits, and read without trusting the sender."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Self

from paddock import errors

VERSION: Final = 1
PASSES_DESCRIPTORS: Final = 1
KNOWS_DETAILS: Final = 2
"""Notes, owners, attributes, signals to one process, following to the last byte, and six kinds of file changes."""
KNOWS_SHORTCUTS: Final = 4
"""Simple commands without a shell."""
KNOWS_WINDOWS: Final = 8
"""Flow control for followers: the agent sends only what they consume, and blocks the process meanwhile."""
MAX_PAYLOAD: Final = 1_114_112
MAX_DATA: Final = 64 * 1024
"""Of one DATA frame."""
MAX_BULK: Final = 1 << 20
"""Of one reply to READ_OUTPUT."""

HEADER: Final = struct.Struct("<IBBHI")
_U8, _U16, _U32, _U64 = (struct.Struct(f"<{code}") for code in "BHIQ")
_I32 = struct.Struct("<i")
_MAX_DESCRIPTORS = 1
_MAX_PATH_PART = 255


class ProtocolError(errors.ProviderUnavailable):
    """The agent violated the protocol. Its connection is closed; the sandbox's state is unknown."""


class RequestKind(IntEnum):
    HELLO = 0x01
    PING = 0x02
    SPAWN = 0x10
    PROCESSES = 0x11
    PROCESS_GET = 0x12
    FOLLOW = 0x13
    READ_OUTPUT = 0x14
    STDIN = 0x15
    CLOSE_STDIN = 0x16
    SIGNAL = 0x17
    RESIZE = 0x18
    WAIT = 0x19
    SIGNAL_ONE = 0x1A
    NOTE = 0x1B
    FOLLOW_ALL = 0x1C
    FOLLOW_WINDOW = 0x1D
    WINDOW = 0x1E
    CANCEL = 0x1F
    STAT = 0x20
    LIST_DIR = 0x21
    OPEN = 0x22
    COMMIT = 0x23
    CLOSE = 0x24
    MKDIR = 0x25
    MOVE = 0x26
    REMOVE = 0x27
    CHMOD = 0x28
    WATCH = 0x29
    PREAD = 0x2A
    PWRITE = 0x2B
    OPEN_FOR = 0x2C
    MKDIR_FOR = 0x2D
    RESOLVE = 0x2E
    ATTRIBUTES = 0x2F
    DIAL = 0x30
    LISTEN = 0x31
    LISTEN_ON = 0x32
    STATS = 0x40
    STOP_ALL = 0x41
    CONTINUE_ALL = 0x42
    KILL_ALL = 0x43


class ReplyKind(IntEnum):
    OK = 0x80
    HELLO_OK = 0x81
    PROCESS = 0x82
    PROCESS_LIST = 0x83
    DATA = 0x84
    ENDED = 0x85
    OUTPUT = 0x86
    ENTRY = 0x87
    ENTRIES = 0x88
    END = 0x89
    OPENED = 0x8A
    MADE = 0x8B
    EVENT = 0x8C
    BYTES = 0x8D
    SOCKET = 0x8E
    STATS_OK = 0x8F
    COUNT = 0x90
    ATTRIBUTES = 0x91
    ERROR = 0xFF


_ANSWERS: Final = {int(kind): kind for kind in ReplyKind}


class Frame(NamedTuple):
    kind: ReplyKind
    number: int
    descriptors: int
    payload: bytes


class FrameSplitter:
    """Splits a byte stream into frames. Buffers at most one incomplete frame."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = HEADER.size

    @property
    def inside_a_frame(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held.clear()
        at, size = 0, len(data)
        self._needed = HEADER.size
        while size - at >= HEADER.size:
            length, kind, descriptors, reserved, number = HEADER.unpack_from(data, at)
            answer = _ANSWERS.get(kind)
            if answer is None or length > MAX_PAYLOAD or descriptors > _MAX_DESCRIPTORS or reserved or not number:
                raise ProtocolError("The sandbox's agent sent an invalid frame.")
            end = at + HEADER.size + length
            if end > size:
                self._needed = end - at
                break
            yield Frame(answer, number, descriptors, data[at + HEADER.size : end])
            at = end
        if at < size:
            self._held += data[at:]


class Writer:
    """Builds a request's payload. Values that do not fit the protocol raise ``Invalid``."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = [b""]
        self._size = 0

    def u8(self, value: int) -> Self:
        return self._number(_U8, value)

    def u16(self, value: int) -> Self:
        return self._number(_U16, value)

    def u32(self, value: int) -> Self:
        return self._number(_U32, value)

    def u64(self, value: int) -> Self:
        return self._number(_U64, value)

    def i32(self, value: int) -> Self:
        return self._number(_I32, value)

    def blob(self, data: bytes) -> Self:
        self._number(_U32, len(data))
        self._parts.append(data)
        self._size += len(data)
        return self

    def text(self, text: str) -> Self:
        return self.blob(encoded(text))

    def texts(self, texts: Iterable[str]) -> Self:
        given = list(texts)
        self._number(_U32, len(given))
        for text in given:
            self.blob(encoded(text))
        return self

    def frame(self, kind: RequestKind, number: int) -> bytes:
        if self._size > MAX_PAYLOAD:
            raise errors.Invalid(f"The request is too long: {self._size} bytes, and at most {MAX_PAYLOAD} can be sent.")
        self._parts[0] = HEADER.pack(self._size, kind, 0, 0, number)
        return b"".join(self._parts)

    def _number(self, form: struct.Struct, value: int) -> Self:
        try:
            self._parts.append(form.pack(value))
        except struct.error:
            raise errors.Invalid(f"{value} is out of range.") from None
        self._size += form.size
        return self


def encoded(text: str) -> bytes:
    """Encode to UTF-8; surrogate escapes become the original bytes."""
    if "\0" in text:
        raise errors.Invalid("Commands, paths and variables must not contain a NUL character.")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise errors.Invalid(f"{text[:200]!r} is not valid Unicode.") from None


def plain_path(path: str) -> str:
    """Without redundant slashes and dots. Raises Invalid for relative paths and for '..'."""
    if not path.startswith("/"):
        raise errors.Invalid(f"{path[:200]!r} must be absolute, for example /workspace/notes.txt.")
    if "\0" in path:
        raise errors.Invalid("A path must not contain a NUL character.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise errors.Invalid(f"{path[:200]!r} must not contain '..'.")
    if any(len(encoded(part)) > _MAX_PATH_PART for part in parts):
        raise errors.Invalid(f"A part of the path is longer than {_MAX_PATH_PART} bytes.")
    return "/" + "/".join(parts)


class Reader:
    """Reads a reply's payload. Anything unexpected, down to the last byte, raises :class:`ProtocolError`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def u8(self) -> int:
        return self._number(_U8)

    def u16(self) -> int:
        return self._number(_U16)

    def u32(self) -> int:
        return self._number(_U32)

    def u64(self) -> int:
        return self._number(_U64)

    def i32(self) -> int:
        return self._number(_I32)

    def flag(self) -> bool:
        value = self._number(_U8)
        if value > 1:
            raise ProtocolError(f"The sandbox's agent answered {value} where only yes or no is meant.")
        return value == 1

    def blob(self, at_most: int = MAX_PAYLOAD) -> bytes:
        size = self._number(_U32)
        begin, end = self._at, self._at + size
        if size > at_most or end > len(self._data):
            raise ProtocolError("The sandbox's agent sent a length that cannot be true.")
        self._at = end
        return self._data[begin:end]

    def name(self, at_most: int) -> bytes:
        """Bytes of any encoding, without NUL."""
        found = self.blob(at_most)
        if b"\0" in found:
            raise ProtocolError("The sandbox's agent sent a NUL character in a text.")
        return found

    def text(self, at_most: int) -> str:
        """Text for display: invalid UTF-8 is replaced."""
        return self.name(at_most).decode(errors="replace")

    def count(self, smallest: int) -> int:
        """The number of following elements, each of at least ``smallest`` bytes; a count that cannot fit is refused."""
        found = self._number(_U32)
        if found * smallest > self.left:
            raise ProtocolError("The sandbox's agent sent a count that cannot be true.")
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError(f"The sandbox's agent sent {self.left} bytes too many.")

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """Several numbers at once, for frequently read structures."""
        try:
            found = form.unpack_from(self._data, self._at)
        except struct.error:
            raise ProtocolError("The sandbox's agent sent an answer that is too short.") from None
        self._at += form.size
        return found

    def _number(self, form: struct.Struct) -> int:
        try:
            found: int = form.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise ProtocolError("The sandbox's agent sent an answer that is too short.") from None
        self._at += form.size
        return found
