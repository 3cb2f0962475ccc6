"""One request and its response between a client and a server, both bodies moving at the same time.

The response's head is read, to know where the response ends: another one behind it would be taken for the response to a
request that may be somebody else's. Its body is passed on as it comes. What the gateway and the egress proxies decide
differently about a response is in methods that they override; what they write to the server is for them to say.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from paddock import errors
from paddock.http1.body import end_of, pass_body, reframe_body
from paddock.http1.head import NO_BODY, Body, Framing, HeaderList, RequestHead, ResponseHead, parse_response
from paddock.http1.limits import MAX_HEAD_BYTES, MAX_INTERIM_RESPONSES
from paddock.http1.stream_socket import StreamSocket


class UpstreamClosed(errors.Unavailable):
    """The server ended the connection before it sent anything."""

    code = "no_answer"


class UpstreamMalformed(errors.Unavailable):
    """What the server sent is not HTTP."""

    code = "bad_answer"


class ResponseCut(errors.Unavailable):
    """A response cannot be finished, which the client sees only by a reset connection."""

    code = "cut_off"


class Stage(Enum):
    WAITING = "waiting for a response"
    ANSWERING = "a response is being sent"
    ENDLESS = "a response that has no end of its own is being sent"
    TUNNEL = "both sides have switched to another protocol"


class TrafficCounter(Protocol):
    """Counts the bytes moved."""

    held: bool
    """A request waits for its response, so silence does not mean idle."""

    def sent(self, count: int) -> None: ...

    def received(self, count: int) -> None: ...


class HttpExchange:
    """Run it once; then its attributes have the state of the two connections."""

    def __init__(
        self,
        client: StreamSocket,
        server: StreamSocket,
        request: RequestHead,
        body: Body,
        counter: TrafficCounter,
        given: bytes = b"",
    ) -> None:
        """``given``: what was read of the body already; ``body`` is the rest."""
        self.client_reusable = False
        self.server_reusable = False
        self.stage = Stage.WAITING
        self._client = client
        self._server = server
        self._request = request
        self._body = body
        self._counter = counter
        self._given = given
        self._uploaded = False

    async def run(self, head: bytes) -> None:
        """``head``: the request's, as it goes to the server.

        Raises UpstreamClosed, UpstreamMalformed and MalformedRequest (of the client) while another response can still
        be given, ResponseCut after that, and OSError where it was the client that broke off.
        """
        self._counter.held = True
        try:
            await self._send(head + self._first_of_the_body())
            await self._both_ways()
        finally:
            self._counter.held = False
        self.client_reusable = self.client_reusable and self._uploaded
        self.server_reusable = self.server_reusable and self._uploaded

    def response_headers(self, response: ResponseHead) -> HeaderList:
        """The headers of the response as they go to the client."""
        return response.end_to_end()

    def passes_hints(self) -> bool:
        """Whether the client gets interim responses other than 100."""
        return True

    async def _both_ways(self) -> None:
        upload = asyncio.create_task(self._upload())
        download = asyncio.create_task(self._download())
        try:
            await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and not download.done():
                upload.result()  # the client broke off, or its body is malformed
            await download
        except errors.MalformedRequest as error:
            if self.stage is not Stage.WAITING:
                raise ResponseCut("was cut off, since the request's body is malformed") from error
            raise
        finally:
            upload.cancel()
            download.cancel()
            await asyncio.gather(upload, download, return_exceptions=True)

    # To the server

    async def _send(self, head: bytes) -> None:
        try:
            await self._server.send(head)
        except OSError as error:
            raise UpstreamClosed("closed the connection") from error
        self._counter.sent(len(head))

    def _first_of_the_body(self) -> bytes:
        """What of it came with the head goes with the head."""
        if self._body.framing is not Framing.LENGTH or self._given:
            return b""
        first = bytes(self._client.ahead[: self._body.length])
        del self._client.ahead[: len(first)]
        self._body = Body(Framing.LENGTH, self._body.length - len(first))
        return first

    async def _upload(self) -> None:
        """The body; then wait for the client to disconnect, until the exchange is over or there is more to read."""
        try:
            if self._given:
                await self._server.send(self._given)
                self._counter.sent(len(self._given))
                self._given = b""
            await reframe_body(self._client, self._server, self._body, self._counter.sent, chunks=True)
            self._uploaded = True
        except OSError:
            if not self._server.failed:
                raise
            return  # it may well respond, and close, before it has read everything
        if await self._client.at_end():
            # Perhaps it only has nothing more to send. A server takes it as it would have without us between.
            self._server.end()
            await self._client.disconnected()
            raise ConnectionAbortedError("The client is gone.")

    # To the client

    async def _download(self) -> None:
        try:
            response = await self._final_head()
            if response.status == 101:
                await self._switch(response)
            else:
                await self._respond(response)
        except errors.MalformedRequest as error:
            raise self._broken(f"sent a response that is not sound HTTP ({error.message.rstrip('.')})") from error
        except OSError as error:
            if self._server.failed:
                raise self._broken("broke the connection") from error
            raise

    def _broken(self, what: str) -> errors.PaddockError:
        return UpstreamMalformed(what) if self.stage is Stage.WAITING else ResponseCut(what)

    async def _final_head(self) -> ResponseHead:
        """The head of the final response; interim responses (100, 103) are passed on."""
        for _ in range(MAX_INTERIM_RESPONSES):
            try:
                data = await self._server.head(MAX_HEAD_BYTES)
            except OSError as error:
                raise UpstreamClosed("closed the connection") from error
            if data is None:
                raise UpstreamClosed("closed the connection without a response")
            self._counter.received(len(data))
            response = parse_response(data)
            if response.status >= 200 or response.status == 101:
                return response
            if self._request.minor == 1 and (response.status == 100 or self.passes_hints()):
                await self._client.send(response.encode(self.response_headers(response)))
        raise UpstreamMalformed(f"sent {MAX_INTERIM_RESPONSES} interim responses and no other")

    async def _switch(self, response: ResponseHead) -> None:
        protocol = response.upgrade()
        if protocol is None or self._request.upgrade() is None:
            raise errors.MalformedRequest("It changed to a protocol that nobody had asked for.")
        headers = [*self.response_headers(response), (b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
        self.stage = Stage.TUNNEL
        self._counter.held = False
        await self._client.send(response.encode(headers))

    async def _respond(self, response: ResponseHead) -> None:
        body = response.body(self._request.method)
        if response.values(b"transfer-encoding") not in ([], [b"chunked"]):
            raise errors.MalformedRequest("The response has a transfer encoding that nobody had asked for.")
        dechunked = body.framing is Framing.CHUNKED and self._request.minor == 0
        reusable = body.framing is not Framing.UNTIL_END and not dechunked
        self.client_reusable = reusable and self._request.keep_alive()
        self.server_reusable = reusable and response.keep_alive()
        headers = [*self.response_headers(response), *(() if dechunked else _framing(response, body))]
        if not self.client_reusable:
            headers.append((b"Connection", b"close"))
        events = any(kind.startswith(b"text/event-stream") for kind in response.values(b"content-type"))
        self.stage = Stage.ENDLESS if events else Stage.ANSWERING
        self._counter.held = False
        head = response.encode(headers)
        if dechunked:
            await self._client.send(head)
            await reframe_body(self._server, self._client, body, self._counter.received, chunks=False)
            return
        end, ahead = end_of(body), self._server.ahead
        count = end.feed(memoryview(bytes(ahead)))
        first = head + bytes(ahead[:count])
        del ahead[:count]
        await self._client.send(first)
        self._counter.received(count)
        await pass_body(self._server, self._client, end, self._counter.received)


def _framing(response: ResponseHead, body: Body) -> HeaderList:
    # A response without a body may still state the length that it would have.
    if body == NO_BODY and response.status != 204 and (length := response.length()) is not None:
        body = Body(Framing.LENGTH, length)
    return list(body.headers())
