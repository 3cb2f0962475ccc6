"""The protocol of a terminal's WebSocket for both clients: its URL, its frames, and how it ends.

The connections themselves are in :mod:`paddock.client.terminal_connections`.
"""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, overload
from urllib.parse import quote, urlencode

from paddock import __version__
from paddock.client.call import by_id
from paddock.client.connection import CONNECT_TIMEOUT, MAX_SILENCE_S, HttpConnection, is_this_machine
from paddock.client.errors import AnswerLost, UnexpectedAnswer
from paddock.errors import PaddockError, error_for

if TYPE_CHECKING:
    from paddock.client.terminal_connections import SyncTerminalConnection, TerminalConnection

P = ParamSpec("P")

_MAX_PIECE = 64 * 1024
"""Maximum bytes of one message to the server."""
_PING_INTERVAL_S = 20.0
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TerminalCall:
    """A terminal to open or to attach to."""

    sandbox_id: str
    params: dict[str, Any]

    def uri(self, connection: HttpConnection) -> str:
        server = "ws" + connection.server_url.removeprefix("http")
        path = f"/sandboxes/{quote(self.sandbox_id, safe='')}/terminal"
        return f"{server}{path}?{urlencode(self.params)}" if self.params else f"{server}{path}"


def connect_options(connection: HttpConnection) -> dict[str, Any]:
    """Arguments of websockets' ``connect``, sync or async."""
    options: dict[str, Any] = {
        "additional_headers": {"Authorization": f"Bearer {connection.api_key}"} if connection.api_key else {},
        "user_agent_header": f"paddock-client/{__version__}",
        "compression": None,
        "open_timeout": CONNECT_TIMEOUT + connection.timeout,  # a paused sandbox is resumed first
        "close_timeout": _CLOSE_TIMEOUT_S,
        "ping_interval": _PING_INTERVAL_S,
        "ping_timeout": MAX_SILENCE_S,
        "max_size": None,
    }
    if is_this_machine(connection.server_url):
        options["proxy"] = None  # a proxy cannot reach this machine's own addresses
    if connection.server_url.startswith("https://"):
        options["ssl"] = ssl.create_default_context()
    return options


@dataclass(slots=True)
class TerminalProgress:
    """Tracks the server's messages. Does no I/O."""

    process_id: str = ""
    offset: int = 0
    """Offset to continue at when the terminal is opened again."""
    skipped: int = 0
    """Bytes that were not read in time and are no longer stored."""
    exit_code: int | None = None
    status: str = "running"
    ended: bool = False
    problem: PaddockError | None = field(default=None, repr=False)

    def take(self, message: str | bytes) -> bytes:
        """The output of one message; empty for messages of other kinds."""
        if isinstance(message, bytes):
            self.offset += len(message)
            return message
        try:
            self._read(json.loads(message))
        except (ValueError, LookupError, TypeError) as error:
            raise UnexpectedAnswer(f"The terminal sent something that is not understood: {message[:200]}") from error
        return b""

    def _read(self, frame: Any) -> None:
        match frame["type"]:
            case "ready":
                self.process_id = frame["process_id"]
            case "gap":
                self.offset, self.skipped = frame["offset"], self.skipped + frame["skipped"]
            case "exit":
                self.exit_code, self.status, self.ended = frame["exit_code"], frame["status"], True
            case "error":
                # For example input for a process that has just ended. It matters only if no exit message follows.
                self.problem = error_for(frame["code"], 0, frame["message"])

    def closed(self, code: int | None, reason: str) -> PaddockError | None:
        """Handle the end of the connection. Raises unless the process has ended."""
        if self.ended:
            return None
        if code is not None and 4400 <= code < 4600:
            name, _, message = reason.partition(": ")
            return error_for(name, code - 4000, message or reason)
        if self.problem is not None:
            return self.problem
        where = f" It may run on as {self.process_id}." if self.process_id else ""
        return AnswerLost(f"The connection to the terminal was lost.{where}")


def pieces(data: str | bytes) -> Iterator[bytes]:
    raw = data.encode() if isinstance(data, str) else data
    for start in range(0, len(raw), _MAX_PIECE):
        yield raw[start : start + _MAX_PIECE]


def resize_frame(rows: int, cols: int) -> str:
    return json.dumps({"type": "resize", "rows": rows, "cols": cols})


def signal_frame(signal: str) -> str:
    return json.dumps({"type": "signal", "signal": signal})


class OpensAsync(Protocol):
    def _terminal(self, call: TerminalCall) -> TerminalConnection: ...


class OpensSync(Protocol):
    def _terminal(self, call: TerminalCall) -> SyncTerminalConnection: ...


class TerminalOperation(Generic[P]):
    """A client method that opens a terminal, sync or async."""

    def __init__(self, build: Callable[P, TerminalCall]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: OpensAsync, owner: type) -> Callable[P, TerminalConnection]: ...
    @overload
    def __get__(self, client: OpensSync, owner: type) -> Callable[P, SyncTerminalConnection]: ...
    def __get__(self, client: Any, owner: type) -> Callable[..., Any]:
        if client is None:
            return self.build

        @functools.wraps(self.build)
        def opened(*args: Any, **kwargs: Any) -> Any:
            return client._terminal(self.build(*map(by_id, args), **kwargs))

        return opened
