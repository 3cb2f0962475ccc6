"""Decodes server-sent events incrementally (WHATWG HTML, section 9.2.6). Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    event: str
    data: str
    id: str
    """The last id received, which is sent as ``Last-Event-ID``."""


class EventDecoder:
    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Parts of an incomplete line, joined when it is complete: repeated concatenation would take quadratic time."""
        self._event = ""
        self._data: list[str] = []
        self.last_id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events completed by this chunk."""
        # A trailing CR may be the first half of CRLF: it is kept for the next chunk.
        held = self._rest[-1:] == [b"\r"]
        if not held and b"\n" not in chunk and b"\r" not in chunk:
            self._rest.append(chunk)
            return
        *lines, rest = _lines(b"".join((*self._rest, chunk)))
        self._rest = [rest[:-1], b"\r"] if rest.endswith(b"\r") else [rest]
        for line in lines:
            if event := self._take(line.decode("utf-8", "replace")):
                yield event

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._event or "message", "\n".join(self._data), self.last_id) if self._data else None
        self._event = ""
        self._data = []
        return event


def _lines(data: bytes) -> list[bytes]:
    """The complete lines, ended by LF, CR or CRLF, and at the end the incomplete one."""
    held = b""
    if data.endswith(b"\r"):
        data, held = data[:-1], b"\r"
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    lines[-1] += held
    return lines
