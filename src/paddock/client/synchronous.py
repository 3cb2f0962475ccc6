"""The sync client: the same methods as the async client, without ``await``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar, cast

import httpx

from paddock.client.answers import Sandbox
from paddock.client.call import ApiCall, Body, StreamCall
from paddock.client.connection import HttpConnection
from paddock.client.errors import AnswerLost
from paddock.client.operations import Operations
from paddock.client.terminal import TerminalCall
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.client.terminal_connections import SyncTerminalConnection

T = TypeVar("T")
CHUNK = 256 * 1024


class SyncSandboxClient(Operations):
    """Client of a Paddock server. Has one connection pool; close it, or use it as a context manager."""

    def __init__(
        self,
        server_url: str | None = None,
        timeout: float = 120.0,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        retries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = HttpConnection.find(server_url, api_key, timeout, retries)
        self._http = httpx.Client(transport=transport, **self._connection.client_options())
        self._sleep = sleep

    @property
    def server_url(self) -> str:
        return self._connection.server_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def iter_sandboxes(
        self,
        user_id: str | None = None,
        status: str | None = None,
        *,
        limit: int | None = None,
        here: bool | None = None,
    ) -> Iterator[Sandbox]:
        """All sandboxes, fetched in pages of ``limit``. ``here``: as for ``list_sandboxes``."""
        cursor: str | None = None
        while True:
            page = self.list_sandboxes(user_id, status, limit=limit, cursor=cursor, here=here)
            yield from page.sandboxes
            if (cursor := page.next_cursor) is None:
                return

    def _run(self, call: ApiCall[T]) -> T:
        return call.read(self._send(call))

    def _stream(self, call: StreamCall[T]) -> Iterator[T]:
        tries = self._connection.tries(call.call)
        while True:
            response = self._send(call.call, stream=True)
            decoder = call.decoder()
            try:
                for chunk in response.iter_bytes():
                    for item in decoder.feed(chunk):
                        tries.progressed()
                        yield item
                if decoder.complete:
                    return
                failure: PaddockError = AnswerLost(f"{response.url} ended its stream prematurely.")
            except httpx.RequestError as error:
                failure = self._connection.broken(error)
            finally:
                response.close()
            resumed = decoder.resume()
            if resumed is None or (pause := tries.pause_after(failure)) is None:
                raise failure
            self._sleep(pause)
            call = resumed

    def _terminal(self, call: TerminalCall) -> SyncTerminalConnection:
        # imports websockets, which few programs need
        from paddock.client.terminal_connections import SyncTerminalConnection

        return SyncTerminalConnection(self._connection, call)

    def _send(self, call: ApiCall[Any], *, stream: bool = False) -> httpx.Response:
        tries = self._connection.tries(call)
        while True:
            options = self._connection.request_options(
                call, self._connection.max_silence if stream else tries.time_left
            )
            if call.body is not None:
                options["content"] = _content(call.body)
            try:
                response = self._http.send(self._http.build_request(**options), stream=stream)
                if response.is_success or response.status_code in call.also:
                    return response
                response.read()
                response.close()
                failure = self._connection.refused(response)
            except httpx.RequestError as error:
                failure = self._connection.broken(error)
            if (pause := tries.pause_after(failure)) is None:
                raise failure
            self._sleep(pause)


def _content(body: Body) -> bytes | Iterable[bytes]:
    if isinstance(body, AsyncIterable):
        raise TypeError("the sync client cannot read an async iterator: give bytes, a file or an iterator")
    if isinstance(body, bytes):
        return body
    if isinstance(body, Path):
        return _open(body)
    if hasattr(body, "read"):
        return _read(cast("IO[bytes]", body))
    return body


def _open(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _read(file)


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk
