"""What all connections share: finding a sandbox, checking access, connecting to a port."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.gateway import responses
from paddock.gateway.access import Access, AccessDenied, AccessGranted
from paddock.gateway.address import ENVD_PORT, AddressForm, Destination
from paddock.gateway.asgi_extensions import UploadThreads
from paddock.gateway.connections import Connections
from paddock.gateway.origin import shows_or_runs
from paddock.gateway.request import IncomingRequest, PortRequest, read_request
from paddock.gateway.routing import ForwardedRequest, Routing
from paddock.gateway.traffic_lease import TrafficLease
from paddock.gateway.upstream import Upstream, dial
from paddock.lifecycle.controller import ActiveSandbox
from paddock.models import State
from paddock.server.context import ServerContext
from paddock.store.records import SandboxRow

MOST_CONNECTIONS = 1024
"""To the ports of one sandbox at a time, so that a public one cannot take all that the server has. At most a quarter of
all connections that there may be."""

PAGE_SECONDS = 1.5
"""How long a person waits for a service to start before a page says so."""

Failure = Callable[[str, errors.PaddockError], responses.GatewayResponse]

_GONE = frozenset({State.DELETING, State.DELETED, State.FAILED})


class Gateway:
    def __init__(self, context: ServerContext, connections: Connections, failure: Failure) -> None:
        """``failure``: how the API answers an error on a path of its own."""
        self.context = context
        self.routing = Routing(context)
        self.tracked = connections
        self.upload_threads = UploadThreads()
        self.scheme = context.settings.public_scheme
        self.served_ports = frozenset({ENVD_PORT, context.settings.mcp_port})
        """Ports that the app behind answers, whatever listens in the sandbox."""
        self._failure = failure
        self._access = Access(context.accounts, context.tokens, context.clock)
        self._connections: Counter[str] = Counter()
        self._unproven = 0
        """Connections to public ports without a key or token."""

    def read(self, head: bytes) -> IncomingRequest | None:
        """None where the request is for the API, and for this server's. Raises MalformedRequest."""
        return read_request(head, self.served_ports, always=self.routing.reads_all(head))

    def check_form(self, request: PortRequest) -> None:
        """On the API's own origin nothing of a sandbox is shown or run; what exists is not revealed."""
        to = request.destination
        if to.form is not AddressForm.HOST and shows_or_runs(request):
            url = None if to.by_id else self.context.settings.port_url(to.key, to.port)
            raise responses.not_for_pages(url, worker=request.header("service-worker") is not None)

    async def find(self, destination: Destination) -> SandboxRow:
        """Raises SandboxNotFound."""
        if destination.by_id:
            sandbox = await self.context.row_cache.get(destination.key)
        else:
            sandbox = await self.context.controller.by_key(destination.key)
        if sandbox is None or sandbox.state in _GONE:
            raise errors.SandboxNotFound.by_id(destination.key)
        return sandbox

    async def admit(self, request: PortRequest, sandbox: SandboxRow, *, secure: bool) -> AccessGranted:
        try:
            return await self._access.check(request, sandbox, secure=secure)
        except AccessDenied as refused:
            if request.destination.by_id:
                raise errors.SandboxNotFound.by_id(request.destination.key) from None
            raise responses.refused(refused) from None

    async def who_asks(self, forwarded: ForwardedRequest) -> Principal | None:
        """The user of the key that was sent, if any; the other server decides what it opens."""
        return (await self._access.principal(forwarded))[0]

    def failed(self, forwarded: ForwardedRequest, error: errors.PaddockError) -> responses.GatewayResponse:
        if forwarded.destination is None:
            return self._failure(forwarded.path, error)
        return self.refused(forwarded, responses.unavailable(error))

    def refused(self, forwarded: ForwardedRequest, refusal: responses.GatewayRefusal) -> responses.GatewayResponse:
        to = forwarded.destination
        as_html = "text/html" in (forwarded.header("accept") or "")
        return refusal.answer(to.key if to else "", to.form if to else AddressForm.PATH, as_html=as_html)

    async def reach(self, lease: TrafficLease, port: int, *, for_a_page: bool = False) -> Upstream:
        """A connection to the port; a service that is registered for it is started where nothing listens yet.

        A person is not kept before an empty window: a page says after a moment that it is starting, and looks again.
        """
        use = await lease.enter()
        try:
            return await dial(use.machine, port)
        except errors.Conflict:
            await self._start_service(lease, use, port, for_a_page)
        try:
            return await dial(use.machine, port)
        except errors.Conflict:
            raise responses.port_closed(port) from None

    async def _start_service(self, lease: TrafficLease, use: ActiveSandbox, port: int, for_a_page: bool) -> None:
        """While it starts nothing moves, and yet the sandbox must not be paused."""
        lease.held = True
        services = self.context.services
        try:
            async with asyncio.timeout(PAGE_SECONDS if for_a_page else None):
                if not await services.reach(use, port):
                    raise responses.port_closed(port)
        except TimeoutError:  # the start itself goes on, whoever asked for it
            raise responses.starting(port, await services.title(use.sandbox.sandbox_id, port)) from None
        except errors.SandboxNotFound:  # deleted meanwhile: answered as always, without the id that is not the caller's
            raise
        except errors.PaddockError as error:
            raise responses.not_started(port, await services.title(use.sandbox.sandbox_id, port), error) from error
        finally:
            lease.held = False

    def counted_forward(self, forwarded: ForwardedRequest, *, proven: bool) -> AbstractContextManager[None]:
        """Requests for the API are not counted by sandbox here either."""
        return nullcontext() if forwarded.destination is None else self.counted(forwarded.key, proven=proven)

    @contextmanager
    def counted(self, key: str, *, proven: bool) -> Iterator[None]:
        """One more connection to the sandbox of this key, if there may be one. ``proven``: with an API key that was
        shown."""
        in_all = self.tracked.limits.in_all
        most = min(MOST_CONNECTIONS, max(1, in_all // 4))
        if self._connections[key] >= most:
            raise responses.too_many(f"The sandbox has {most} open connections, and may not have more.")
        if not proven and self._unproven >= in_all // 2:
            raise responses.too_many("There are too many connections to public ports. Try again in a moment.")
        self._connections[key] += 1
        self._unproven += not proven
        try:
            yield
        finally:
            self._unproven -= not proven
            self._connections[key] -= 1
            if not self._connections[key]:
                del self._connections[key]


def explain(error: errors.PaddockError) -> responses.GatewayRefusal:
    """The refusal for a sandbox that could not be entered."""
    match error:
        case errors.NotFound() | errors.Asleep() | errors.SandboxGone() | errors.SandboxFailed():
            return responses.not_found()
        case errors.TooManyRequests():
            return responses.too_many(error.message)
        case errors.Conflict():
            return responses.transitioning()
        case _:
            return responses.unavailable(error)
