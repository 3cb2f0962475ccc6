"""The proxy of one sandbox: HTTP and CONNECT, on a socket that listens inside the sandbox and is served by the host.

The sandbox has no other route out, so only connections of this proxy leave it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http import HTTPStatus
from ipaddress import IPv6Address

from paddock import errors
from paddock.egress.acceptor import Acceptor
from paddock.egress.gate import EgressConnection, EgressGate
from paddock.egress.policy import EgressPolicy
from paddock.egress.records import EgressReport
from paddock.egress.traffic import Limits, Traffic, tunnel
from paddock.http1.exchange import HttpExchange, Stage
from paddock.http1.head import Body, RequestHead, parse_request, write_head
from paddock.http1.hosts import Host
from paddock.http1.stream_socket import StreamSocket

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_PHRASE = 400
_DIRECT = "localhost,127.0.0.1,0.0.0.0,::1,.localhost"


class EgressProxy:
    """``listener`` was created in the sandbox's network namespace, to which it stays bound; the proxy owns it."""

    def __init__(self, listener: socket.socket, gate: EgressGate, limits: Limits | None = None) -> None:
        self._gate = gate
        self._limits = limits or Limits()
        self._acceptor = Acceptor(listener, self._serve, self._limits.connections, _too_many(self._limits.connections))

    def start(self) -> None:
        """Needs a running event loop; earlier connections wait in the socket's backlog."""
        self._acceptor.start()

    async def close(self) -> None:
        """Close every connection and the listener."""
        await self._acceptor.close()

    def update(self, policy: EgressPolicy) -> None:
        self._gate.update(policy)

    def report(self) -> EgressReport:
        return self._gate.report()

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return self._acceptor.connections

    async def _serve(self, client: StreamSocket) -> None:
        await ProxySession(client, self._gate, self._limits).run()


class ProxySession:
    def __init__(self, client: StreamSocket, gate: EgressGate, limits: Limits) -> None:
        self._client = client
        self._gate = gate
        self._limits = limits
        self._server: EgressConnection | None = None
        self._destination: tuple[Host, int] | None = None

    async def run(self) -> None:
        try:
            while await self._serve_one():
                pass
        except errors.MalformedRequest as trouble:
            self._close_server("the client's request was malformed")
            with contextlib.suppress(OSError):  # it may have disconnected already
                await self._send_and_close(_malformed(trouble.message))
        except OSError:
            self._close_server("reset by the client")
            self._client.reset()
        except asyncio.CancelledError:
            self._close_server("closed with the proxy")
            self._client.reset()
            raise
        finally:
            self._close_server("complete")
            self._client.close()

    async def _serve_one(self) -> bool:
        """Whether the connection can serve another request."""
        data = await self._next_head()
        if data is None:
            return False
        request = parse_request(data)
        if request.method == b"CONNECT":
            await self._tunnel(request)
            return False
        return await self._forward(request)

    async def _next_head(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.keep_alive_seconds):
                if not self._client.ahead and not await self._client.fill():
                    return None
        except TimeoutError:
            return None
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                return await self._client.head(self._limits.head_bytes)
        except TimeoutError:
            await self._send_and_close(_head_too_slow(self._limits.head_seconds))
            return None

    async def _tunnel(self, request: RequestHead) -> None:
        host, port = request.tunnel()
        server = await self._connect(host, port)
        if server is not None:
            await self._client.send(_ESTABLISHED)
            await self._carry(server)

    async def _forward(self, request: RequestHead) -> bool:
        host, port, path = request.destination()
        body = request.body()  # refuse ambiguous framing before connecting
        server = self._kept(host, port) or await self._connect(host, port)
        if server is None:
            return False
        await server.entry.ready()
        traffic = Traffic(server.entry, self._limits.idle_seconds)
        exchange = HttpExchange(self._client, server.stream, request, body, traffic)
        try:
            async with traffic:
                await exchange.run(_forwarded(request, body, host, port, path))
        except (errors.Unavailable, TimeoutError) as error:
            await self._failed(exchange.stage, host, port, error)
            return False
        if exchange.stage is Stage.TUNNEL:
            await self._carry(server)
            return False
        if not exchange.server_reusable:
            self._close_server("complete")
        if not exchange.client_reusable:
            await self._client.linger()
        return exchange.client_reusable

    async def _failed(self, stage: Stage, host: Host, port: int, error: Exception) -> None:
        late = isinstance(error, TimeoutError)
        why = "no answer in time" if late else f"it {error}."
        self._close_server(why)
        if stage is not Stage.WAITING:
            # A partial response must not look complete.
            self._client.reset()
        else:
            await self._send_and_close(_too_slow(str(host), port) if late else _unreachable(str(host), port, why))

    def _kept(self, host: Host, port: int) -> EgressConnection | None:
        """The connection of the previous request, if it has the same destination and the server still keeps it open."""
        if self._server is None:
            return None
        if self._destination == (host, port) and self._server.stream.is_quiet():
            return self._server
        self._close_server("complete")
        return None

    async def _connect(self, host: Host, port: int) -> EgressConnection | None:
        """None if the connection was refused or failed; the client has then got the error."""
        self._close_server("complete")
        task = asyncio.current_task()
        try:
            server = await self._gate.connect(host, port, self._limits.connect_seconds)
        except errors.Forbidden as trouble:
            await self._send_and_close(denied(str(host), port, trouble.message))
        except errors.NotFound:
            await self._send_and_close(_unresolved(str(host), port))
        except errors.PaddockError as trouble:
            await self._send_and_close(_unreachable(str(host), port, trouble.message))
        except TimeoutError:
            await self._send_and_close(_too_slow(str(host), port))
        else:
            server.cut = task.cancel if task is not None else None
            self._client.ready = server.entry.ready
            self._server, self._destination = server, (host, port)
            return server
        return None

    async def _carry(self, server: EgressConnection) -> None:
        how = await tunnel(self._client, server.stream, server.entry, self._limits.idle_seconds)
        self._close_server(how)

    def _close_server(self, reason: str) -> None:
        if self._server is not None:
            self._gate.finish(self._server, reason)
            self._server = self._destination = None

    async def _send_and_close(self, data: bytes) -> None:
        await self._client.send(data)
        await self._client.linger()


def _forwarded(request: RequestHead, body: Body, host: Host, port: int, path: bytes) -> bytes:
    """The head as it goes to the server."""
    name = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
    headers = [(b"Host", (name if port == 80 else f"{name}:{port}").encode())]
    # No Via header: some servers then do not compress.
    headers += [header for header in request.end_to_end() if header[0].lower() != b"host"]
    headers += body.headers()
    if protocol := request.upgrade():
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
    return write_head(b"%b %b HTTP/1.1" % (request.method, path), headers)


def _answer(status: HTTPStatus, mark: str, text: str) -> bytes:
    """The first line of the text is in the status line, too: all that pip and others show of a refused CONNECT."""
    phrase = f"{status.phrase}: {text.partition(chr(10))[0]}"[:_MAX_PHRASE]
    phrase = "".join(each if each.isascii() and each.isprintable() else "?" for each in phrase)
    body = f"{text}\n".encode()
    headers = (
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(body)).encode()),
        (b"X-Paddock-Egress", mark.encode()),
        (b"Connection", b"close"),
    )
    return write_head(f"HTTP/1.1 {status.value} {phrase}".encode(), headers) + body


def denied(host: str, port: int, why: str) -> bytes:
    return _answer(
        HTTPStatus.FORBIDDEN,
        "denied",
        f"Paddock did not connect this sandbox to {host} port {port}: {why}.\n"
        "Whoever owns the sandbox can change its egress policy; that takes effect at once, without a restart.",
    )


def _unreachable(host: str, port: int, why: str) -> bytes:
    return _answer(HTTPStatus.BAD_GATEWAY, "unreachable", f"Paddock could not reach {host} port {port}: {why}")


def _unresolved(host: str, port: int) -> bytes:
    text = f"Paddock could not reach {host} port {port}: there is no host of this name."
    return _answer(HTTPStatus.BAD_GATEWAY, "unresolved", text)


def _too_slow(host: str, port: int) -> bytes:
    text = f"Paddock could not reach {host} port {port}: it did not answer in time. Try again later."
    return _answer(HTTPStatus.GATEWAY_TIMEOUT, "unreachable", text)


def _malformed(why: str) -> bytes:
    return _answer(HTTPStatus.BAD_REQUEST, "malformed", why)


def _head_too_slow(seconds: float) -> bytes:
    text = f"The request head was not complete after {seconds:g} seconds."
    return _answer(HTTPStatus.REQUEST_TIMEOUT, "malformed", text)


def _too_many(limit: int) -> bytes:
    text = f"This sandbox has {limit} connections open, which is its limit. Close some and try again."
    return _answer(HTTPStatus.SERVICE_UNAVAILABLE, "busy", text)


def proxy_variables(port: int) -> dict[str, str]:
    """For egress mode ``proxy``, whose listener is at this port of the sandbox's loopback interface."""
    proxy = f"http://127.0.0.1:{port}"
    variables: dict[str, str] = {}
    # Both cases: curl reads http_proxy only in lower case (in CGI programs HTTP_PROXY may come from a request header),
    # Go and others check upper case first. This covers curl, wget, git, pip, uv, apt, npm, pnpm, cargo, Go, Ruby,
    # requests, httpx.
    for name, value in (("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", _DIRECT)):
        variables[name] = variables[name.lower()] = value
    # Other protocols. CONNECT carries them, so that wss, ssh helpers and FTP clients work, too.
    variables["ALL_PROXY"] = variables["all_proxy"] = proxy
    # Node reads the variables above since 24 (and 22.21), but only with this one set.
    variables["NODE_USE_ENV_PROXY"] = "1"
    # yarn from version 2 on reads only its own names.
    variables["YARN_HTTP_PROXY"] = variables["YARN_HTTPS_PROXY"] = proxy
    # A JVM reads none of the above. JAVA_TOOL_OPTIONS would reach all of them, but each then prints a line to stderr,
    # which breaks programs that parse it; so only the two build tools that download are configured.
    variables["MAVEN_OPTS"] = variables["GRADLE_OPTS"] = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")
    )
    return variables
