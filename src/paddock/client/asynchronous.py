"""The async client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
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
    from paddock.client.terminal_connections import TerminalConnection

T = TypeVar("T")
CHUNK = 256 * 1024


class SandboxClient(Operations):
    """Client of a Paddock server. Has one connection pool; close it, or use it as a context manager."""

    def __init__(
        self,
        server_url: str | None = None,
        timeout: float = 120.0,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        retries: int = 4,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = HttpConnection.find(server_url, api_key, timeout, retries)
        self._http = httpx.AsyncClient(transport=transport, **self._connection.client_options())
        self._sleep = sleep

    @property
    def server_url(self) -> str:
        return self._connection.server_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def iter_sandboxes(
        self,
        user_id: str | None = None,
        status: str | None = None,
        *,
        limit: int | None = None,
        here: bool | None = None,
    ) -> AsyncIterator[Sandbox]:
        """All sandboxes, fetched in pages of ``limit``. ``here``: as for ``list_sandboxes``."""
        cursor: str | None = None
        while True:
            page = await self.list_sandboxes(user_id, status, limit=limit, cursor=cursor, here=here)
            for sandbox in page.sandboxes:
                yield sandbox
            if (cursor := page.next_cursor) is None:
                return

    async def _run(self, call: ApiCall[T]) -> T:
        return call.read(await self._send(call))

    async def _stream(self, call: StreamCall[T]) -> AsyncIterator[T]:
        tries = self._connection.tries(call.call)
        while True:
            response = await self._send(call.call, stream=True)
            decoder = call.decoder()
            try:
                async for chunk in response.aiter_bytes():
                    for item in decoder.feed(chunk):
                        tries.progressed()
                        yield item
                if decoder.complete:
                    return
                failure: PaddockError = AnswerLost(f"{response.url} ended its stream prematurely.")
            except httpx.RequestError as error:
                failure = self._connection.broken(error)
            finally:
                await response.aclose()
            resumed = decoder.resume()
            if resumed is None or (pause := tries.pause_after(failure)) is None:
                raise failure
            await self._sleep(pause)
            call = resumed

    def _terminal(self, call: TerminalCall) -> TerminalConnection:
        # imports websockets, which few programs need
        from paddock.client.terminal_connections import TerminalConnection

        return TerminalConnection(self._connection, call)

    async def _send(self, call: ApiCall[Any], *, stream: bool = False) -> httpx.Response:
        tries = self._connection.tries(call)
        while True:
            options = self._connection.request_options(
                call, self._connection.max_silence if stream else tries.time_left
            )
            if call.body is not None:
                options["content"] = _content(call.body)
            try:
                response = await self._http.send(self._http.build_request(**options), stream=stream)
                if response.is_success or response.status_code in call.also:
                    return response
                await response.aread()
                await response.aclose()
                failure = self._connection.refused(response)
            except httpx.RequestError as error:
                failure = self._connection.broken(error)
            if (pause := tries.pause_after(failure)) is None:
                raise failure
            await self._sleep(pause)


def _content(body: Body) -> bytes | AsyncIterable[bytes]:
    if isinstance(body, bytes | AsyncIterable):
        return body
    if isinstance(body, Path):
        return _open(body)
    if hasattr(body, "read"):
        return _read(cast("IO[bytes]", body))
    return _iterate(body)


async def _open(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        async for chunk in _read(file):
            yield chunk


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK):
        yield chunk


async def _iterate(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
