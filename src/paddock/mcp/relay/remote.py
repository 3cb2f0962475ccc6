"""Connections to a server over HTTP, each made on behalf of the sandbox and under its egress rules.

The client created here has no other route out: names are resolved and judged where the connection is made, for
redirects as well, and no proxy settings or credentials of this process's environment are used.
"""

from __future__ import annotations

import json
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
from paddock.mcp.relay import incoming
from paddock.memory import Hold, MemoryReservation

CONNECT_SECONDS = 20.0
_READ_TIMEOUT_S = 300.0
_READ_BYTES = 16 * 1024
"""Bytes parsed at once: a response may begin with an endless number of interim responses."""
_EVENTS = "text/event-stream"
_JSON = "application/json"
_SMALL_REQUEST = 64 << 10
"""A larger request has arguments in it, so it is a call."""
_BODY_HEADERS = frozenset({b"content-type", b"content-length", b"content-encoding", b"transfer-encoding"})
"""Headers that describe the body's encoding, which changes here."""


class Outgoing(Protocol):
    sock: Any

    def close(self) -> None: ...


Dial = Callable[[str, int, float], Awaitable[Outgoing]]
"""Host, port, seconds. Raises errors of :mod:`paddock.errors` for a host that is not allowed or does not answer."""


def client(dial: Dial | None, headers: Mapping[str, str], hold: Hold) -> httpx2.AsyncClient:
    """``dial``: None if this process is in the sandbox itself, and may connect directly. ``hold``: reserves memory for
    each response."""
    context = httpx2.create_ssl_context(trust_env=False)
    backend = AnyIOBackend() if dial is None else EgressBackend(dial)
    sent = httpx2.Headers(dict(headers))
    sent["Accept-Encoding"] = "identity"  # a small compressed body may expand to a large one
    return httpx2.AsyncClient(
        transport=_Transport(backend, context, hold),
        headers=sent,
        trust_env=False,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=_READ_TIMEOUT_S),
    )


class EgressBackend(httpcore2.AsyncNetworkBackend):
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
            return _OutgoingStream(await SocketStream.from_socket(outgoing.sock), outgoing)
        except BaseException:
            outgoing.sock.close()
            outgoing.close()
            raise

    async def connect_unix_socket(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("A sandbox has no sockets of the host.")

    async def sleep(self, seconds: float) -> None:
        await AnyIOBackend().sleep(seconds)


class _OutgoingStream(httpcore2.AsyncNetworkStream):
    """The byte stream of one connection; closing it ends its entry in the sandbox's ledger."""

    def __init__(self, stream: ByteStream, outgoing: Outgoing) -> None:
        self._stream = stream
        self._outgoing = outgoing

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _as(httpcore2.ReadTimeout, httpcore2.ReadError), anyio.fail_after(timeout):
            try:
                return await self._stream.receive(min(max_bytes, _READ_BYTES))
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
        return _OutgoingStream(stream, self._outgoing)

    def get_extra_info(self, info: str) -> Any:
        return None


class _Transport(httpx2.AsyncBaseTransport):
    """httpx over a connection pool with the given network backend, whose responses are checked."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend, context: ssl.SSLContext, hold: Hold) -> None:
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=backend)
        self._hold = hold

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
        body = _Body(answer.stream, self._hold())
        try:
            return await _readable(answer, body, _most(request))
        except errors.PaddockError as problem:
            await body.aclose()
            if request.method != "POST":
                raise httpx2.ReadError(problem.message) from problem
            # For an error response the status is enough; otherwise the request gets the reason.
            status, content = (answer.status, b"") if answer.status >= 300 else (502, incoming.refusal(problem))
            return httpx2.Response(status, headers={"Content-Type": _JSON}, content=content)
        except BaseException:
            await body.aclose()
            raise

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of a response, and the memory reserved for what is built from it."""

    def __init__(self, stream: Any, memory: MemoryReservation) -> None:
        self._stream = stream
        self.memory = memory

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _for_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        self.memory.release()
        await self._stream.aclose()


class _Checked(httpx2.AsyncByteStream):
    """A transformed body; closing it closes the original response."""

    def __init__(self, parts: AsyncIterator[bytes], body: _Body) -> None:
        self._parts = parts
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


async def _readable(answer: httpcore2.Response, body: _Body, most: int) -> httpx2.Response:
    """The response with a body that the SDK may parse. Raises for one that it may not."""
    kind, coding = _header(answer, b"content-type"), _header(answer, b"content-encoding")
    if coding not in ("", "identity"):
        raise errors.Invalid(f"The MCP server answers in the encoding {coding[:40]!r}, which it was not asked for.")
    kind = kind.partition(";")[0].strip()  # without a charset, which would change the meaning of the bytes
    if kind == _EVENTS:
        parts = incoming.events(aiter(body), most, body.memory)
    else:
        content = await incoming.whole(aiter(body), most, body.memory)
        if kind == _JSON:
            await incoming.check(content)
        parts = _one(content)
    headers = [(name, value) for name, value in answer.headers if name.lower() not in _BODY_HEADERS]
    if kind:
        headers.append((b"Content-Type", kind.encode()))
    return httpx2.Response(answer.status, headers=headers, stream=_Checked(parts, body), extensions=answer.extensions)


def _most(request: httpx2.Request) -> int:
    """Maximum bytes of one message in the response."""
    if request.method != "POST":
        return incoming.MAX_OTHER
    content = request.content
    long = len(content) > _SMALL_REQUEST or json.loads(content or b"{}").get("method") in incoming.LONG
    return incoming.MAX_ANSWER if long else incoming.MAX_OTHER


def _header(answer: httpcore2.Response, name: bytes) -> str:
    found = next((value for each, value in answer.headers if each.lower() == name), b"")
    return found.decode(errors="replace").strip().lower()


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


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
