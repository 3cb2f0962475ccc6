"""One client's connection, for as long as its requests are for ports of sandboxes.

Each request is read, routed and judged by itself, and answered before the next one is looked at; so the answers can
never be mixed up, whatever the client sends ahead. A connection into the sandbox is used again only for a request that
may be sent twice: nobody can know whether a server that closes a kept connection has read what came last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import structlog

from paddock import errors
from paddock.gateway import responses
from paddock.gateway.connections import TrackedConnection
from paddock.gateway.exchange import (
    HEAD_BYTES,
    HttpExchange,
    PortExchange,
    ResponseCut,
    Stage,
    UpstreamClosed,
    UpstreamMalformed,
)
from paddock.gateway.forwarding import ForwardExchange, NoCounter, unanswered
from paddock.gateway.gateway import Gateway, explain
from paddock.gateway.request import ClientInfo, PortRequest, read_port_request
from paddock.gateway.responses import GatewayRefusal
from paddock.gateway.routing import ForwardedRequest
from paddock.gateway.traffic_lease import TrafficLease
from paddock.gateway.tunnel import tunnel
from paddock.gateway.upstream import Upstream
from paddock.http1.head import Framing
from paddock.http1.stream_socket import StreamSocket
from paddock.store.records import SandboxRow

KEEP_ALIVE_SECONDS = 620.0
"""Between two requests. Longer than usual load balancers wait, so that it is never we who close under them."""
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})

log = structlog.get_logger(__name__)


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

    async def run(self, first: bytes) -> bytes | None:
        """Serve from this head on. What was read of a request that is for the API; None where the connection is over.

        Raises OSError where the client is gone, or must learn that its answer is not whole.
        """
        self._task = asyncio.current_task()
        head: bytes | None = first
        try:
            while head is not None:
                try:
                    request = read_port_request(head, self._gateway.served_ports)
                except errors.MalformedRequest as problem:
                    await self._last_words(responses.malformed(problem))
                    return None
                if (forwarded := await self._for_another_server(head)) is not None:
                    lives = await self._pass_on(forwarded)
                elif request is None:
                    return head + bytes(self._client.ahead)
                else:
                    lives = await self._serve(request)
                if not lives or self._stopping:
                    return None
                head = await self._next_head()
            return None
        finally:
            await self._leave()

    async def run_one(self, forwarded: ForwardedRequest) -> bytes | None:
        """Have one request answered by another server. What was read beyond it; None where the connection is over."""
        self._task = asyncio.current_task()
        return bytes(self._client.ahead) if await self._pass_on(forwarded) and not self._stopping else None

    def stop(self) -> None:
        """The server stops: what is in the middle of an answer may finish it."""
        self._stopping = True
        under_way = self._exchange is not None and self._exchange.stage in (Stage.WAITING, Stage.ANSWERING)
        if not under_way and self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Let go of the client's socket; whose it is may go on with it."""
        self._client.close()

    def reset(self) -> None:
        """The same where the client must learn that its answer is not whole."""
        self._client.reset()

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
            await self._last_words(responses.malformed(problem))
            return False
        except errors.PaddockError as error:
            return await self._refuse(request, explain(error))

    async def _forward(self, request: PortRequest) -> bool:
        self._gateway.check_form(request)
        sandbox = await self._gateway.find(request.destination)
        caller = self._gateway.routing.told_by(request.head, self._caller)
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
                return await self._converse(request, head, kept)
            except UpstreamClosed:
                log.debug("a kept connection was closed", port=port)
        await self._hang_up()
        self._upstream, self._upstream_port = await self._reach(request, port), port
        return await self._converse(request, head, self._upstream)

    async def _reach(self, request: PortRequest, port: int) -> Upstream:
        return await self._gateway.reach(self._inside, port, for_a_page=request.wants_html())

    async def _converse(self, request: PortRequest, head: bytes, upstream: Upstream) -> bool:
        exchange = self._exchange = PortExchange(self._client, upstream.wire, request, self._inside)
        try:
            await exchange.run(head)
            if exchange.stage is Stage.TUNNEL:
                await tunnel(self._client, upstream.wire, self._inside)
        finally:
            self._exchange = None
            if not (exchange.server_lives and upstream.keepable):
                await self._hang_up()
        return exchange.client_lives

    # One request for another server

    async def _for_another_server(self, head: bytes) -> ForwardedRequest | None:
        """Where as many requests are at work for the caller as may be, that is said here."""
        forwarded = await self._gateway.routing.find(head)
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
        exchange = self._exchange = ForwardExchange(self._client, forwarded, self._tracked.let_in)
        try:
            await self._leave()
            with self._gateway.counted_forward(forwarded, proven=self._tracked.proven):
                await exchange.run(forwarded.encode(self._caller, self._gateway.routing.proof()))
                if exchange.stage is Stage.TUNNEL:
                    await tunnel(self._client, forwarded.upstream.wire, NoCounter())
                elif not exchange.client_lives:
                    await self._client.linger()
        except ResponseCut as cut:
            raise ConnectionAbortedError(cut.message) from cut
        except (UpstreamClosed, UpstreamMalformed) as problem:
            await self._last_words(self._gateway.failed(forwarded, unanswered(forwarded, problem)))
            return False
        except errors.MalformedRequest as problem:
            await self._last_words(responses.malformed(problem))
            return False
        except GatewayRefusal as refusal:  # of too many to one sandbox
            await self._last_words(self._gateway.refused(forwarded, refusal))
            return False
        finally:
            self._exchange = None
            await forwarded.upstream.close()
        return exchange.client_lives

    # What the connection holds between requests

    @property
    def _inside(self) -> TrafficLease:
        if self._lease is None:
            raise AssertionError("nobody is inside")
        return self._lease

    async def _enter(self, sandbox: SandboxRow) -> None:
        if self._lease is not None and self._lease.sandbox.sandbox_id != sandbox.sandbox_id:
            await self._leave()
        if self._lease is None:
            self._counted.enter_context(self._gateway.counted(sandbox.key, proven=self._tracked.proven))
            self._lease = TrafficLease(self._gateway.context.controller, sandbox, self._lost)
        elif self._lease.sandbox.version != sandbox.version:
            # It was paused, or more, since we came in.
            await self._lease.leave()
        self._tracked.let_in()
        await self._lease.enter()

    async def _leave(self) -> None:
        await self._hang_up()
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

    async def _hang_up(self) -> None:
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            await upstream.close()

    # The client

    async def _next_head(self) -> bytes | None:
        """None where it has nothing more to ask. What it kept open meanwhile is let go when the other end closes it."""
        self._tracked.idle()
        with self._noticing_the_end():
            try:
                if not self._client.ahead:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await self._client.readable()
            except TimeoutError:
                return None
        try:
            async with asyncio.timeout(self._head_seconds):
                head = await self._client.head(HEAD_BYTES)
                self._tracked.busy()
                return head
        except TimeoutError:
            await self._last_words(responses.malformed(errors.MalformedRequest("The request took too long."), 408))
        except errors.MalformedRequest as problem:
            held = bytes(self._client.ahead)
            too_long = len(held) >= HEAD_BYTES
            await self._last_words(
                responses.head_too_long(held, HEAD_BYTES) if too_long else responses.malformed(problem)
            )
        return None

    @contextmanager
    def _noticing_the_end(self) -> Iterator[None]:
        """A server that is gone must not be held on to: its whole network would live on for a descriptor."""
        if self._upstream is None:
            yield
            return
        loop, wire = asyncio.get_running_loop(), self._upstream.wire
        loop.add_reader(wire.sock, self._drop)
        try:
            yield
        finally:
            if self._upstream is not None:
                loop.remove_reader(wire.sock)

    def _drop(self) -> None:
        if self._upstream is not None:
            asyncio.get_running_loop().remove_reader(self._upstream.wire.sock)
            self._upstream.wire.close()
            self._upstream = None

    async def _refuse(self, request: PortRequest, refusal: GatewayRefusal) -> bool:
        await self._hang_up()
        to = request.destination
        return await self._answer(request, refusal.answer(to.key, to.form, as_html=request.wants_html()))

    async def _answer(self, request: PortRequest, answer: responses.GatewayResponse) -> bool:
        lives = request.head.keep_alive() and request.body.framing is Framing.NONE and not self._stopping
        if not lives:
            await self._last_words(answer, head_only=request.method == "HEAD")
            return False
        await self._say(answer.encode(head_only=request.method == "HEAD"))
        return True

    async def _last_words(self, answer: responses.GatewayResponse, *, head_only: bool = False) -> None:
        await self._say(answer.encode(head_only=head_only, close=True))
        await self._client.linger()

    async def _say(self, answer: bytes) -> None:
        """What the gateway answers itself is short. Who sends on and on and reads none of it is not waited for."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._client.send(answer)
        except TimeoutError:
            raise ConnectionAbortedError("The client does not read its answers.") from None
