"""One client's connection, for as long as its requests are for ports of sandboxes.

Each request is read, routed and authorised by itself, and answered before the next one is read; so responses can never
be mixed up, whatever the client pipelines. A connection into the sandbox is used again only for a request that may be
sent twice: a server that closes a kept connection may or may not have read what was sent last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import structlog

from paddock import errors
from paddock.gateway import responses
from paddock.gateway.address import AddressForm
from paddock.gateway.connections import TrackedConnection
from paddock.gateway.forwarding import ForwardExchange, NoCounter, unanswered
from paddock.gateway.gateway import Gateway, explain
from paddock.gateway.origin import confined_headers
from paddock.gateway.request import ClientInfo, IncomingRequest, PortRequest
from paddock.gateway.responses import GatewayRefusal
from paddock.gateway.routing import ForwardedRequest
from paddock.gateway.traffic_lease import TrafficLease
from paddock.gateway.upstream import Upstream
from paddock.http1.exchange import (
    HttpExchange,
    ResponseCut,
    Stage,
    TrafficCounter,
    UpstreamClosed,
    UpstreamMalformed,
)
from paddock.http1.head import Framing, HeaderList, ResponseHead
from paddock.http1.limits import HALF_CLOSED_SECONDS, MAX_HEAD_BYTES
from paddock.http1.stream_socket import StreamSocket, tunnel
from paddock.store.records import SandboxRow

KEEP_ALIVE_SECONDS = 620.0
"""Between two requests. Longer than usual load balancers wait, so that the server never closes first."""
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})

log = structlog.get_logger(__name__)


class PortExchange(HttpExchange):
    """With an application in a sandbox, whose responses reach no further than its own origin."""

    def __init__(self, client: StreamSocket, server: StreamSocket, request: PortRequest, lease: TrafficLease) -> None:
        super().__init__(client, server, request.head, request.body, lease)
        self._port_request = request

    def response_headers(self, response: ResponseHead) -> HeaderList:
        return confined_headers(response.end_to_end(), self._port_request)

    def passes_hints(self) -> bool:
        """On the API's origin, where no page is shown, there are no hints of what a page will need."""
        return self._port_request.destination.form is AddressForm.HOST


class PortSession:
    def __init__(self, gateway: Gateway, client: StreamSocket, caller: ClientInfo, tracked: TrackedConnection) -> None:
        self._gateway = gateway
        self._tracked = tracked
        self._head_seconds = gateway.context.settings.head_timeout
        self._stall_seconds = gateway.context.settings.stall_timeout
        self._client = client
        self._caller = caller
        self._lease: TrafficLease | None = None
        self._upstream: Upstream | None = None
        self._upstream_port = 0
        self._counted = ExitStack()
        self._exchange: HttpExchange | None = None
        self._stopping = False
        self._task: asyncio.Task[object] | None = None
        self.unserved: IncomingRequest | None = None

    async def run(self, request: IncomingRequest) -> bytes | None:
        """Serve from this request on. What was read of one that is for the API (``unserved``, if it had to be parsed);
        None where the connection is over.

        Raises OSError where the client is gone, or must learn that its response is not whole.
        """
        self._task = asyncio.current_task()
        try:
            while True:
                if (forwarded := await self._for_another_server(request)) is not None:
                    reusable = await self._pass_on(forwarded)
                elif request.port_request is None:
                    self.unserved = request
                    return request.data + bytes(self._client.ahead)
                else:
                    reusable = await self._serve(request.port_request)
                head = await self._next_head() if reusable and not self._stopping else None
                if head is None:
                    return None
                try:
                    read = self._gateway.read(head)
                except errors.MalformedRequest as problem:
                    await self._last_response(responses.malformed(problem.message))
                    return None
                if read is None:
                    return head + bytes(self._client.ahead)
                request = read
        finally:
            await self._leave()

    async def run_one(self, forwarded: ForwardedRequest) -> bytes | None:
        """Have one request answered by another server. What was read beyond it; None where the connection is over."""
        self._task = asyncio.current_task()
        return bytes(self._client.ahead) if await self._pass_on(forwarded) and not self._stopping else None

    def stop(self) -> None:
        """The server stops: a response that has begun may be finished."""
        self._stopping = True
        answering = self._exchange is not None and self._exchange.stage in (Stage.WAITING, Stage.ANSWERING)
        if not answering and self._task is not None:
            self._task.cancel()

    # One request

    async def _serve(self, request: PortRequest) -> bool:
        """Whether the connection is good for another request."""
        try:
            return await self._forward(request)
        except GatewayRefusal as refusal:
            return await self._refuse(request, refusal)
        except ResponseCut as cut:
            raise ConnectionAbortedError(cut.message) from cut
        except (UpstreamClosed, UpstreamMalformed) as problem:
            return await self._refuse(request, responses.broken(request.destination.port, problem.message))
        except errors.MalformedRequest as problem:
            await self._last_response(responses.malformed(problem.message))
            return False
        except errors.PaddockError as error:
            return await self._refuse(request, explain(error))

    async def _forward(self, request: PortRequest) -> bool:
        self._gateway.check_form(request)
        sandbox = await self._gateway.find(request.destination)
        caller = self._gateway.routing.client_of(request.head, self._caller)
        secure = request.scheme(caller) == "https"
        admitted = await self._gateway.admit(request, sandbox, secure=secure)
        if not admitted.as_public:
            owner = await self._gateway.context.accounts.owner(sandbox.owner_id)
            self._tracked.work_for(owner.user_id, limited=not owner.is_admin)
        if admitted.cookie is not None:
            return await self._answer(request, responses.redirect(request.clean_location(), admitted.cookie))
        await self._enter(sandbox)
        head = request.forwarded(caller, host_mask=sandbox.host_mask, secret=admitted.secret)
        return await self._ask(request, head)

    async def _ask(self, request: PortRequest, head: bytes) -> bool:
        repeatable = request.method in _REPEATABLE and request.body.framing is Framing.NONE and not request.upgrade
        port = request.destination.port
        if repeatable and (kept := self._kept(port)) is not None:
            try:
                return await self._run_exchange(request, head, kept)
            except UpstreamClosed:
                log.debug("a kept connection was closed", port=port)
        await self._close_upstream()
        self._upstream, self._upstream_port = await self._reach(request, port), port
        return await self._run_exchange(request, head, self._upstream)

    async def _reach(self, request: PortRequest, port: int) -> Upstream:
        return await self._gateway.reach(self._entered, port, for_a_page=request.wants_html())

    async def _run_exchange(self, request: PortRequest, head: bytes, upstream: Upstream) -> bool:
        exchange = self._exchange = PortExchange(self._client, upstream.stream, request, self._entered)
        try:
            await exchange.run(head)
            if exchange.stage is Stage.TUNNEL:
                await self._tunnel(upstream, self._entered)
        finally:
            self._exchange = None
            if not (exchange.server_reusable and upstream.keepable):
                await self._close_upstream()
        return exchange.client_reusable

    async def _tunnel(self, upstream: Upstream, counter: TrafficCounter) -> None:
        await tunnel(self._client, upstream.stream, counter.sent, counter.received, HALF_CLOSED_SECONDS)

    # One request for another server

    async def _for_another_server(self, request: IncomingRequest) -> ForwardedRequest | None:
        """None also where the caller has too many requests at work: that is answered here."""
        forwarded = await self._gateway.routing.find(request)
        if forwarded is None:
            return None
        try:
            who = await self._gateway.who_asks(forwarded)
            if who is not None:
                self._tracked.work_for(who.user_id, limited=not who.is_admin)
        except BaseException as problem:
            await forwarded.upstream.close()
            if isinstance(problem, errors.PaddockError):
                return None
            raise
        return forwarded

    async def _pass_on(self, forwarded: ForwardedRequest) -> bool:
        """Whether the connection is good for another request."""
        exchange = self._exchange = ForwardExchange(self._client, forwarded, self._tracked.admit)
        try:
            await self._leave()
            with self._gateway.counted_forward(forwarded, proven=self._tracked.proven):
                await exchange.run(forwarded.encode(self._caller, self._gateway.routing.proof()))
                if exchange.stage is Stage.TUNNEL:
                    await self._tunnel(forwarded.upstream, NoCounter())
                elif not exchange.client_reusable:
                    await self._client.linger()
        except ResponseCut as cut:
            raise ConnectionAbortedError(cut.message) from cut
        except (UpstreamClosed, UpstreamMalformed) as problem:
            await self._last_response(self._gateway.failed(forwarded, unanswered(forwarded, problem)))
            return False
        except errors.MalformedRequest as problem:
            await self._last_response(responses.malformed(problem.message))
            return False
        except GatewayRefusal as refusal:  # of too many to one sandbox
            await self._last_response(self._gateway.refused(forwarded, refusal))
            return False
        finally:
            self._exchange = None
            await forwarded.upstream.close()
        return exchange.client_reusable

    # What the connection holds between requests

    @property
    def _entered(self) -> TrafficLease:
        if self._lease is None:
            raise AssertionError("no sandbox was entered")
        return self._lease

    async def _enter(self, sandbox: SandboxRow) -> None:
        if self._lease is not None and self._lease.sandbox.sandbox_id != sandbox.sandbox_id:
            await self._leave()
        if self._lease is None:
            self._counted.enter_context(self._gateway.counted(sandbox.key, proven=self._tracked.proven))
            self._lease = TrafficLease(self._gateway.context.controller, sandbox, self._lost)
        elif self._lease.sandbox.version != sandbox.version:
            # It was paused, or changed otherwise, since it was entered.
            await self._lease.leave()
        self._tracked.admit()
        await self._lease.enter()

    async def _leave(self) -> None:
        await self._close_upstream()
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await lease.close()
        self._counted.close()

    def _lost(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _kept(self, port: int) -> Upstream | None:
        fits = self._upstream is not None and self._upstream_port == port and self._upstream.quiet
        return self._upstream if fits else None

    async def _close_upstream(self) -> None:
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            await upstream.close()

    # The client

    async def _next_head(self) -> bytes | None:
        """None where there is none. A kept connection into the sandbox is closed when its other end closes."""
        self._tracked.idle()
        with self._closing_with_the_server():
            try:
                if not self._client.ahead:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await self._client.readable()
            except TimeoutError:
                return None
        try:
            async with asyncio.timeout(self._head_seconds):
                head = await self._client.head(MAX_HEAD_BYTES)
                self._tracked.busy()
                return head
        except TimeoutError:
            await self._last_response(responses.malformed("The request took too long.", 408))
        except errors.MalformedRequest as problem:
            held = bytes(self._client.ahead)
            too_long = len(held) >= MAX_HEAD_BYTES
            await self._last_response(
                responses.head_too_long(held, MAX_HEAD_BYTES) if too_long else responses.malformed(problem.message)
            )
        return None

    @contextmanager
    def _closing_with_the_server(self) -> Iterator[None]:
        """A descriptor of a server that is gone would keep the whole network namespace of its sandbox."""
        if self._upstream is None:
            yield
            return
        loop, sock = asyncio.get_running_loop(), self._upstream.stream.sock
        loop.add_reader(sock, self._server_closed)
        try:
            yield
        finally:
            if self._upstream is not None:
                loop.remove_reader(sock)

    def _server_closed(self) -> None:
        if self._upstream is not None:
            asyncio.get_running_loop().remove_reader(self._upstream.stream.sock)
            self._upstream.stream.close()
            self._upstream = None

    async def _refuse(self, request: PortRequest, refusal: GatewayRefusal) -> bool:
        await self._close_upstream()
        to = request.destination
        return await self._answer(request, refusal.answer(to.key, to.form, as_html=request.wants_html()))

    async def _answer(self, request: PortRequest, answer: responses.GatewayResponse) -> bool:
        reusable = request.head.keep_alive() and request.body.framing is Framing.NONE and not self._stopping
        if not reusable:
            await self._last_response(answer, head_only=request.method == "HEAD")
            return False
        await self._send(answer.encode(head_only=request.method == "HEAD"))
        return True

    async def _last_response(self, answer: responses.GatewayResponse, *, head_only: bool = False) -> None:
        await self._send(answer.encode(head_only=head_only, close=True))
        await self._client.linger()

    async def _send(self, answer: bytes) -> None:
        """The gateway's own responses are short. A client that does not read them is not waited for."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._client.send(answer)
        except TimeoutError:
            raise ConnectionAbortedError("The client does not read its answers.") from None
