"""One HTTP request and its response between a client and a server, both bodies streamed concurrently."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address

from paddock import errors
from paddock.egress.gate import EgressConnection
from paddock.egress.limits import Limits
from paddock.egress.relay import Idle
from paddock.http1.body import move_body
from paddock.http1.head import (
    MAX_INTERIM_RESPONSES,
    NO_BODY,
    Body,
    Framing,
    RequestHead,
    ResponseHead,
    parse_response,
    write_head,
)
from paddock.http1.hosts import Host
from paddock.http1.stream_socket import StreamSocket


class ProxyExchange:
    """Use ``run`` once; afterwards the attributes tell the state of the two connections."""

    def __init__(
        self, client: StreamSocket, connection: EgressConnection, request: RequestHead, limits: Limits
    ) -> None:
        self.answered = False
        """Whether any part of a response was sent to the client: after that no other response can be sent."""
        self.switched = False
        """Whether both sides have switched to another protocol, such as WebSocket."""
        self.client_lives = False
        self.server_lives = False
        self._client = client
        self._server = connection.wire
        self._passage = connection.passage
        self._request = request
        self._limits = limits
        self._idle = Idle(limits.idle_seconds)

    async def run(self, host: Host, port: int, path: bytes) -> None:
        """Raises MalformedRequest for errors of the client, Unavailable for errors of the server, TimeoutError."""
        body = self._request.body()
        await self._passage.ready()
        async with self._idle:
            await self._send_request(host, port, path, body)
            upload = asyncio.create_task(move_body(self._client, self._server, body, self._sent))
            download = asyncio.create_task(self._download())
            try:
                await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
                if upload.done() and upload.exception() is not None and not self._server.failed:
                    await upload  # the client disconnected, or its body is invalid
                # A server may respond and close before it has read everything.
                await download
                complete = upload.done() and upload.exception() is None
            finally:
                upload.cancel()
                download.cancel()
                await asyncio.gather(upload, download, return_exceptions=True)
        self.client_lives = self.client_lives and complete
        self.server_lives = self.server_lives and complete

    async def _send_request(self, host: Host, port: int, path: bytes, body: Body) -> None:
        request = self._request
        name = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
        headers = [(b"Host", (name if port == 80 else f"{name}:{port}").encode())]
        # No Via header: some servers then do not compress.
        headers += [header for header in request.end_to_end() if header[0].lower() != b"host"]
        headers += body.header()
        if protocol := request.upgrade():
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
        head = write_head(b"%b %b HTTP/1.1" % (request.method, path), headers)
        try:
            await self._server.send(head)
        except OSError as trouble:
            raise errors.Unavailable(f"it ended the connection: {trouble.strerror}.") from trouble
        self._sent(len(head))

    async def _download(self) -> None:
        try:
            response = await self._final_head()
            if response.status == 101:
                await self._switch(response)
            else:
                await self._respond(response)
        except errors.MalformedRequest as trouble:
            raise errors.Unavailable(f"its answer is not sound HTTP. {trouble.message}") from trouble
        except OSError as trouble:
            if self._server.failed:
                raise errors.Unavailable(f"it broke the connection: {trouble.strerror}.") from trouble
            raise

    async def _final_head(self) -> ResponseHead:
        """The head of the final response; interim responses (100, 103) are forwarded."""
        for _ in range(MAX_INTERIM_RESPONSES):
            data = await self._server.head(self._limits.head_bytes)
            if data is None:
                raise errors.Unavailable("it closed the connection without an answer.")
            self._received(len(data))
            response = parse_response(data)
            if response.status >= 200 or response.status == 101:
                return response
            if self._request.minor == 1:
                await self._send_head(response, response.end_to_end())
        raise errors.Unavailable(f"it sent {MAX_INTERIM_RESPONSES} interim responses and no answer.")

    async def _switch(self, response: ResponseHead) -> None:
        protocol = response.upgrade()
        if protocol is None or self._request.upgrade() is None:
            raise errors.Unavailable("it changed to a protocol that nobody had asked for.")
        headers = [*response.end_to_end(), (b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
        await self._send_head(response, headers)
        self.switched = True

    async def _respond(self, response: ResponseHead) -> None:
        body = response.body(self._request.method)
        headers = [*response.end_to_end(), *self._framing(response, body)]
        chunks = self._request.minor == 1
        lives = body.framing is not Framing.UNTIL_END and (chunks or body.framing is not Framing.CHUNKED)
        self.client_lives = lives and self._request.keep_alive()
        self.server_lives = lives and response.keep_alive()
        if not self.client_lives:
            headers.append((b"Connection", b"close"))
        await self._send_head(response, headers)
        await move_body(self._server, self._client, body, self._received, chunks=chunks)

    def _framing(self, response: ResponseHead, body: Body) -> list[tuple[bytes, bytes]]:
        if body.framing is Framing.CHUNKED and self._request.minor == 0:
            return []
        # A response without a body may still state the length that it would have.
        if body == NO_BODY and response.status != 204 and (length := response.length()) is not None:
            body = Body(Framing.LENGTH, length)
        return list(body.header())

    async def _send_head(self, response: ResponseHead, headers: list[tuple[bytes, bytes]]) -> None:
        self.answered = True
        await self._client.send(write_head(b"HTTP/1.1 %d %b" % (response.status, response.reason), headers))

    def _sent(self, count: int) -> None:
        self._passage.sent(count)
        self._idle.touch()

    def _received(self, count: int) -> None:
        self._passage.received(count)
        self._idle.touch()
