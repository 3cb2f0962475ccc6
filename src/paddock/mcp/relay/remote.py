"""A server that is reached over HTTP. Every connection to it is made in the sandbox's stead, under its egress rules.

There is no other way out of the client that is made here: names are resolved and judged where the connection is
made, redirects and new connections alike, and no proxy or credential of this process's environment is used.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import anyio
import httpcore2
import httpx2
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream
from httpcore2 import AnyIOBackend

from paddock import errors

CONNECT_SECONDS = 20.0
_READ_SECONDS = 300.0


class Outgoing(Protocol):
    sock: Any

    def close(self) -> None: ...


Dial = Callable[[str, int, float], Awaitable[Outgoing]]
"""Host, port, seconds. Raises what :mod:`paddock.errors` has for a host that may not be reached, or does not answer."""


def client(dial: Dial | None, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """``dial``: None where this process is in the sandbox itself, and may connect by itself."""
    context = httpx2.create_ssl_context(trust_env=False)
    backend = AnyIOBackend() if dial is None else Guarded(dial)
    return httpx2.AsyncClient(
        transport=_Transport(backend, context),
        headers=dict(headers),
        trust_env=False,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=_READ_SECONDS),
    )


class Guarded(httpcore2.AsyncNetworkBackend):
    def __init__(self, dial: Dial) -> None:
        self._dial = dial

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            outgoing = await self._dial(host, port, timeout or CONNECT_SECONDS)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host}:{port} does not answer.") from None
        except errors.PaddockError as problem:
            raise httpcore2.ConnectError(problem.message) from problem
        try:
            return _Stream(await SocketStream.from_socket(outgoing.sock), outgoing)
        except BaseException:
            outgoing.sock.close()
            outgoing.close()
            raise

    async def connect_unix_socket(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("A sandbox has no sockets of the host.")

    async def sleep(self, seconds: float) -> None:
        await AnyIOBackend().sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """The bytes of one connection, which is over in the sandbox's ledger when it is closed."""

    def __init__(self, stream: ByteStream, outgoing: Outgoing) -> None:
        self._stream = stream
        self._outgoing = outgoing

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _as(httpcore2.ReadTimeout, httpcore2.ReadError), anyio.fail_after(timeout):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:
            with _as(httpcore2.WriteTimeout, httpcore2.WriteError), anyio.fail_after(timeout):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._outgoing.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with _as(httpcore2.ConnectTimeout, httpcore2.ConnectError), anyio.fail_after(timeout):
                stream = await TLSStream.wrap(
                    self._stream, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except BaseException:
            await self.aclose()
            raise
        return _Stream(stream, self._outgoing)

    def get_extra_info(self, info: str) -> Any:
        return None


class _Transport(httpx2.AsyncBaseTransport):
    """httpx over a pool whose only way to the network is the given one."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend, context: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=backend)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _for_httpx():
            answer = await self._pool.handle_async_request(asked)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _for_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextmanager
def _as(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as problem:
        raise late(str(problem)) from problem
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError) as problem:
        raise broken(str(problem) or type(problem).__name__) from problem


@contextmanager
def _for_httpx() -> Iterator[None]:
    try:
        yield
    except httpcore2.TimeoutException as problem:
        raise httpx2.ConnectTimeout(str(problem)) from problem
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
        raise httpx2.ConnectError(str(problem)) from problem
