"""One client connection of the proxy: its requests in sequence, or the one tunnel that it requests."""

from __future__ import annotations

import asyncio
import contextlib

from paddock import errors
from paddock.egress import answers
from paddock.egress.exchange import ProxyExchange
from paddock.egress.gate import EgressConnection, EgressGate
from paddock.egress.limits import Limits
from paddock.egress.relay import relay
from paddock.http1.head import RequestHead, parse_request
from paddock.http1.hosts import Host
from paddock.http1.stream_socket import StreamSocket


class ProxySession:
    def __init__(self, client: StreamSocket, gate: EgressGate, limits: Limits) -> None:
        self._client = client
        self._gate = gate
        self._limits = limits
        self._server: EgressConnection | None = None
        self._goal: tuple[Host, int] | None = None

    async def run(self) -> None:
        try:
            while await self._serve_one():
                pass
        except errors.MalformedRequest as trouble:
            self._hang_up("the client's request was malformed")
            with contextlib.suppress(OSError):  # it may have disconnected already
                await self._send_and_close(answers.malformed(trouble.message))
        except OSError:
            self._hang_up("reset by the client")
            self._client.reset()
        except asyncio.CancelledError:
            self._hang_up("closed with the proxy")
            self._client.reset()
            raise
        finally:
            self._hang_up("complete")
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
            await self._send_and_close(answers.head_too_slow(self._limits.head_seconds))
            return None

    async def _tunnel(self, request: RequestHead) -> None:
        host, port = request.tunnel()
        server = await self._connect(host, port)
        if server is not None:
            await self._client.send(answers.ESTABLISHED)
            await self._relay(server)

    async def _forward(self, request: RequestHead) -> bool:
        host, port, path = request.destination()
        request.body()  # refuse ambiguous framing before connecting
        server = self._kept(host, port) or await self._connect(host, port)
        if server is None:
            return False
        exchange = ProxyExchange(self._client, server, request, self._limits)
        try:
            await exchange.run(host, port, path)
        except (errors.Unavailable, TimeoutError) as trouble:
            await self._failed(exchange, host, port, trouble)
            return False
        except errors.MalformedRequest:
            if exchange.answered:
                self._client.reset()
                return False
            raise
        if exchange.switched:
            await self._relay(server)
            return False
        if not exchange.server_lives:
            self._hang_up("complete")
        if not exchange.client_lives:
            await self._client.linger()
        return exchange.client_lives

    async def _failed(self, exchange: ProxyExchange, host: Host, port: int, trouble: Exception) -> None:
        late = isinstance(trouble, TimeoutError)
        why = "no answer in time" if late else str(trouble)
        self._hang_up(why)
        if exchange.answered:
            # A partial response must not look complete.
            self._client.reset()
        else:
            said = answers.too_slow(str(host), port) if late else answers.unreachable(str(host), port, why)
            await self._send_and_close(said)

    def _kept(self, host: Host, port: int) -> EgressConnection | None:
        """The connection of the previous request, if it has the same destination and the server still keeps it open."""
        if self._server is None:
            return None
        if self._goal == (host, port) and self._server.wire.is_quiet():
            return self._server
        self._hang_up("complete")
        return None

    async def _connect(self, host: Host, port: int) -> EgressConnection | None:
        """None if the connection was refused or failed; the client has then got the error."""
        self._hang_up("complete")
        task = asyncio.current_task()
        try:
            server = await self._gate.connect(host, port, self._limits.connect_seconds)
        except errors.Forbidden as trouble:
            await self._send_and_close(answers.denied(str(host), port, trouble.message))
        except errors.NotFound:
            await self._send_and_close(answers.unresolved(str(host), port))
        except errors.PaddockError as trouble:
            await self._send_and_close(answers.unreachable(str(host), port, trouble.message))
        except TimeoutError:
            await self._send_and_close(answers.too_slow(str(host), port))
        else:
            server.cut = task.cancel if task is not None else None
            self._client.ready = server.passage.ready
            self._server, self._goal = server, (host, port)
            return server
        return None

    async def _relay(self, server: EgressConnection) -> None:
        how = await relay(self._client, server.wire, server.passage, self._limits.idle_seconds)
        self._hang_up(how)

    def _hang_up(self, reason: str) -> None:
        if self._server is not None:
            self._gate.finish(self._server, reason)
            self._server = self._goal = None

    async def _send_and_close(self, data: bytes) -> None:
        await self._client.send(data)
        await self._client.linger()
