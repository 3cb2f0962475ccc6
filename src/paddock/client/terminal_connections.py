"""An open terminal: :class:`TerminalConnection` and its sync form :class:`SyncTerminalConnection`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from paddock.distribution import CLIENT, install_command
from paddock.errors import PaddockError, Unsupported, error_for

try:
    import websockets.asyncio.client
    import websockets.sync.client
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
except ModuleNotFoundError as missing:
    raise Unsupported(
        f"A terminal needs websockets, which is not installed here. Install it: {install_command('terminal', CLIENT)}"
    ) from missing

from paddock.client.connection import HttpConnection
from paddock.client.errors import ServerUnreachable, UnexpectedAnswer
from paddock.client.terminal import TerminalCall, TerminalProgress, connect_options, pieces, resize_frame, signal_frame


class _TerminalState:
    """State shared by both forms."""

    def __init__(self, connection: HttpConnection, call: TerminalCall) -> None:
        self._connection = connection
        self._uri = call.uri(connection)
        self._progress = TerminalProgress(call.params.get("process_id", ""), call.params.get("offset", 0))
        self._early = b""

    @property
    def process_id(self) -> str:
        """Id with which to attach to the terminal again."""
        return self._progress.process_id

    @property
    def offset(self) -> int:
        """Bytes of output received so far: where to continue when the terminal is opened again."""
        return self._progress.offset

    @property
    def skipped(self) -> int:
        """Bytes of output that were not read in time and are no longer stored."""
        return self._progress.skipped

    @property
    def exit_code(self) -> int | None:
        """The program's exit code after the end of its output; None before."""
        return self._progress.exit_code

    @property
    def status(self) -> str:
        """``running`` until the output has ended, then the status that the server reports."""
        return self._progress.status

    def _closed(self, error: ConnectionClosed) -> PaddockError | None:
        received = error.rcvd
        failure = self._progress.closed(*((received.code, received.reason) if received else (None, "")))
        if failure is not None:
            failure.__cause__ = error
        return failure

    def _refused(self, error: Exception) -> PaddockError:
        url = self._connection.server_url
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            return error_for("", status, f"{url} refused the terminal's WebSocket with HTTP status {status}.")
        if isinstance(error, InvalidHandshake | InvalidURI):
            return UnexpectedAnswer(f"{url} does not speak WebSocket as a Paddock server does: {error}")
        if isinstance(error, TimeoutError):
            return ServerUnreachable(f"The Paddock server at {url} did not open the terminal in time.")
        return ServerUnreachable(f"No Paddock server answers at {url}. Start one with `paddock up`.")


class TerminalConnection(_TerminalState):
    """``async for data in terminal`` yields output as bytes until the program ends."""

    _socket: websockets.asyncio.client.ClientConnection

    async def __aenter__(self) -> Self:
        try:
            self._socket = await websockets.asyncio.client.connect(self._uri, **connect_options(self._connection))
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise self._refused(error) from error
        try:
            self._early = self._progress.take(await self._socket.recv())
        except ConnectionClosed as error:
            raise self._closed(error) or UnexpectedAnswer("The terminal ended before it began.") from error
        except BaseException:
            await self._socket.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._progress.ended:
            data, self._early = self._early, b""
            try:
                data = data or self._progress.take(await self._socket.recv())
            except ConnectionClosed as error:
                if failure := self._closed(error):
                    raise failure from error
                return
            if data:
                yield data

    async def write(self, data: str | bytes) -> None:
        """Write input as if typed: ``"ls\n"``, or ``b"\x03"`` for Ctrl-C."""
        for piece in pieces(data):
            await self._send(piece)

    async def resize(self, rows: int, cols: int) -> None:
        await self._send(resize_frame(rows, cols))

    async def send_signal(self, signal: str) -> None:
        """Signal the process group of the terminal's first program."""
        await self._send(signal_frame(signal))

    async def _send(self, message: Any) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed as error:
            if failure := self._closed(error):
                raise failure from error


class SyncTerminalConnection(_TerminalState):
    """``for data in terminal`` yields output as bytes until the program ends. One thread may read while another
    writes."""

    _socket: websockets.sync.client.ClientConnection

    def __enter__(self) -> Self:
        try:
            opening = websockets.sync.client.connect(self._uri, **connect_options(self._connection))
            self._socket = opening.__enter__()
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise self._refused(error) from error
        try:
            self._early = self._progress.take(self._socket.recv())
        except ConnectionClosed as error:
            raise self._closed(error) or UnexpectedAnswer("The terminal ended before it began.") from error
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def __iter__(self) -> Iterator[bytes]:
        while not self._progress.ended:
            data, self._early = self._early, b""
            try:
                data = data or self._progress.take(self._socket.recv())
            except ConnectionClosed as error:
                if failure := self._closed(error):
                    raise failure from error
                return
            if data:
                yield data

    def write(self, data: str | bytes) -> None:
        """Write input as if typed: ``"ls\n"``, or ``b"\x03"`` for Ctrl-C."""
        for piece in pieces(data):
            self._send(piece)

    def resize(self, rows: int, cols: int) -> None:
        self._send(resize_frame(rows, cols))

    def send_signal(self, signal: str) -> None:
        """Signal the process group of the terminal's first program."""
        self._send(signal_frame(signal))

    def _send(self, message: Any) -> None:
        try:
            self._socket.send(message)
        except ConnectionClosed as error:
            if failure := self._closed(error):
                raise failure from error
