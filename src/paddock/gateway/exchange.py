"""One request into a sandbox and the response out of it, both bodies flowing at the same time.

The response's head is read, to know where the response ends: another one behind it would be taken for the answer to a
request that may be for somebody else. Its body is passed on as it comes, and nothing is collected.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from paddock import errors
from paddock.gateway.address import AddressForm
from paddock.gateway.client_socket import gone, hung_up
from paddock.gateway.origin import RawHeaders, outward
from paddock.gateway.request import PortRequest
from paddock.http1.body import move_body
from paddock.http1.body_framing import BodyEnd, ConnectionCloseEnd, end_of
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
from paddock.http1.stream_socket import CHUNK, StreamSocket

HEAD_BYTES = 65_536


class UpstreamClosed(errors.Unavailable):
    """The server in the sandbox ended the connection before it said anything."""

    code = "no_answer"


class UpstreamMalformed(errors.Unavailable):
    """What it said is not HTTP."""

    code = "bad_answer"


class ResponseCut(errors.Unavailable):
    """The connection broke in the middle of an answer: only a broken connection tells the client so."""

    code = "cut_off"


class Stage(Enum):
    WAITING = "waiting for an answer"
    ANSWERING = "an answer is under way"
    ENDLESS = "an answer that has no end of its own is under way"
    TUNNEL = "both sides speak another protocol"


class UpstreamRequest(Protocol):
    @property
    def head(self) -> RequestHead: ...

    @property
    def body(self) -> Body: ...

    @property
    def upgrade(self) -> bytes | None: ...


class TrafficCounter(Protocol):
    """Is told how many bytes were moved."""

    held: bool
    """While a request waits for its answer, silence is work."""

    def sent(self, count: int) -> None: ...

    def received(self, count: int) -> None: ...


class HttpExchange:
    """Run it once; then its attributes say what became of the two connections."""

    def __init__(
        self,
        client: StreamSocket,
        server: StreamSocket,
        request: UpstreamRequest,
        lease: TrafficCounter,
        given: bytes = b"",
    ) -> None:
        """``given``: what was read of the body already; the request's body is the rest."""
        self.client_lives = False
        self.server_lives = False
        self.stage = Stage.WAITING
        self._client = client
        self._server = server
        self._request = request
        self._lease = lease
        self._body = request.body
        self._given = given
        self._uploaded = False

    async def run(self, head: bytes) -> None:
        """Raises UpstreamClosed and UpstreamMalformed while another answer can still be given, Cut after that, and
        OSError where it was the client that broke off."""
        self._lease.held = True
        try:
            await self._send(head + self._first_of_the_body())
            await self._both_ways()
        finally:
            self._lease.held = False
        self.client_lives = self.client_lives and self._uploaded
        self.server_lives = self.server_lives and self._uploaded

    async def _both_ways(self) -> None:
        upload = asyncio.create_task(self._upload())
        download = asyncio.create_task(self._download())
        try:
            await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and not download.done():
                upload.result()  # the client broke off, or sent nonsense
            await download
        finally:
            upload.cancel()
            download.cancel()
            await asyncio.gather(upload, download, return_exceptions=True)

    def _present(self, response: ResponseHead) -> RawHeaders:
        """The headers of the response as they go to the client."""
        return response.end_to_end()

    def _passes_hints(self) -> bool:
        return True

    # Into the sandbox

    async def _send(self, head: bytes) -> None:
        try:
            await self._server.send(head)
        except OSError as trouble:
            raise UpstreamClosed("closed the connection") from trouble
        self._lease.sent(len(head))

    def _first_of_the_body(self) -> bytes:
        """What of it came with the head goes with the head."""
        if self._body.framing is not Framing.LENGTH or self._given:
            return b""
        first = bytes(self._client.ahead[: self._body.length])
        del self._client.ahead[: len(first)]
        self._body = Body(Framing.LENGTH, self._body.length - len(first))
        return first

    async def _upload(self) -> None:
        """The body; and then whatever tells that the client does not wait any more. Ends with an error, or never
        before the exchange is over, unless there is nothing to look out for."""
        try:
            if self._given:
                await self._server.send(self._given)
                self._lease.sent(len(self._given))
                self._given = b""
            await move_body(self._client, self._server, self._body, self._lease.sent)
            self._uploaded = True
        except OSError:
            if not self._server.failed:
                raise
            return  # it may well answer, and close, before it has read everything
        if await hung_up(self._client):
            # Perhaps it only has nothing more to say. A server takes it as it would have without us between.
            self._server.end()
            await gone(self._client)
            raise ConnectionAbortedError("The client is gone.")

    # Out of it

    async def _download(self) -> None:
        try:
            response = await self._final_head()
            if response.status == 101:
                await self._switch(response)
            else:
                await self._respond(response)
        except errors.MalformedRequest as trouble:
            raise self._broken(f"did not answer in sound HTTP ({trouble.message.rstrip('.')})") from trouble
        except OSError as trouble:
            if self._server.failed:
                raise self._broken("broke the connection") from trouble
            raise

    def _broken(self, what: str) -> errors.PaddockError:
        return UpstreamMalformed(what) if self.stage is Stage.WAITING else ResponseCut(what)

    async def _final_head(self) -> ResponseHead:
        """The head of the answer proper; what the server says meanwhile (100, 103) is passed on."""
        for _ in range(MAX_INTERIM_RESPONSES):
            try:
                data = await self._server.head(HEAD_BYTES)
            except OSError as trouble:
                raise UpstreamClosed("closed the connection") from trouble
            if data is None:
                raise UpstreamClosed("closed the connection without an answer")
            self._lease.received(len(data))
            response = parse_response(data)
            if response.status >= 200 or response.status == 101:
                return response
            if self._request.head.minor == 1 and (response.status == 100 or self._passes_hints()):
                await self._client.send(_encode(response, self._present(response)))
        raise UpstreamMalformed(f"sent {MAX_INTERIM_RESPONSES} interim responses and no answer")

    async def _respond(self, response: ResponseHead) -> None:
        body = response.body(self._request.head.method)
        if response.values(b"transfer-encoding") not in ([], [b"chunked"]):
            raise errors.MalformedRequest("The answer is encoded in a way that nobody had asked for.")
        modern = self._request.head.minor == 1
        lives = body.framing is not Framing.UNTIL_END and (modern or body.framing is not Framing.CHUNKED)
        self.client_lives = lives and self._request.head.keep_alive()
        self.server_lives = lives and response.keep_alive()
        headers = [*self._present(response), *self._framing(response, body)]
        if not self.client_lives:
            headers.append((b"Connection", b"close"))
        events = any(kind.startswith(b"text/event-stream") for kind in response.values(b"content-type"))
        self.stage = Stage.ENDLESS if events else Stage.ANSWERING
        self._lease.held = False
        if body.framing is Framing.CHUNKED and not modern:
            await self._client.send(_encode(response, headers))
            await move_body(self._server, self._client, body, self._lease.received, chunks=False)
        else:
            await self._pass_on(_encode(response, headers), end_of(body))

    def _framing(self, response: ResponseHead, body: Body) -> list[tuple[bytes, bytes]]:
        if body.framing is Framing.CHUNKED and self._request.head.minor == 0:
            return []
        # A response that has no body may still tell how long the body would be.
        if body == NO_BODY and response.status != 204 and (length := response.length()) is not None:
            body = Body(Framing.LENGTH, length)
        return list(body.header())

    async def _pass_on(self, head: bytes, end: BodyEnd) -> None:
        """The body as it comes: a small piece stays a small piece, and is there at once."""
        ahead = self._server.ahead
        count = end.feed(memoryview(bytes(ahead)))
        first = head + bytes(ahead[:count])
        del ahead[:count]
        await self._client.send(first)
        self._lease.received(count)
        while not end.done:
            count = await self._server.move(self._client, CHUNK, end.feed)
            self._lease.received(count)
            if not count and isinstance(end, ConnectionCloseEnd):
                return
            if not count:
                raise errors.MalformedRequest("The connection ended within a body.")

    # Both ways

    async def _switch(self, response: ResponseHead) -> None:
        protocol = response.upgrade()
        if protocol is None or self._request.upgrade is None:
            raise errors.MalformedRequest("It changed to a protocol that nobody had asked for.")
        headers = [*self._present(response), (b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
        self.stage = Stage.TUNNEL
        self._lease.held = False
        await self._client.send(_encode(response, headers))


class PortExchange(HttpExchange):
    """With an application in a sandbox, whose answers reach no further than its own origin."""

    def __init__(self, client: StreamSocket, server: StreamSocket, request: PortRequest, lease: TrafficCounter) -> None:
        super().__init__(client, server, request, lease)
        self._port_request = request

    def _present(self, response: ResponseHead) -> RawHeaders:
        return outward(response.end_to_end(), self._port_request)

    def _passes_hints(self) -> bool:
        """On the API's origin, where no page is shown, there are no hints of what a page will need."""
        return self._port_request.destination.form is AddressForm.HOST


def _encode(response: ResponseHead, headers: RawHeaders) -> bytes:
    return write_head(b"HTTP/1.1 %d %b" % (response.status, response.reason), headers)
