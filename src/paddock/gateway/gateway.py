"""What all connections share: finding a sandbox, judging who may, reaching a port."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from paddock import errors
from paddock.gateway import answers
from paddock.gateway.access import Access, Admitted, Refused
from paddock.gateway.address import ENVD_PORT, Destination, Form
from paddock.gateway.connections import Connections
from paddock.gateway.direct import Pouring
from paddock.gateway.origin import shows_or_runs
from paddock.gateway.request import PortRequest
from paddock.gateway.routing import Forwarded, Routing
from paddock.gateway.upstream import Upstream, dial
from paddock.gateway.visit import Visit
from paddock.lifecycle.accounts import Principal
from paddock.lifecycle.controller import Use
from paddock.lifecycle.house import House
from paddock.models import State
from paddock.store.records import Sandbox

MOST_CONNECTIONS = 1024
"""To the ports of one sandbox at a time, so that a public one cannot take all that the server has. At most a quarter of
all connections that there may be."""

PAGE_SECONDS = 1.5
"""How long a person waits for a service to start before a page says so."""

Failure = Callable[[str, errors.PaddockError], answers.Answer]

_GONE = frozenset({State.DELETING, State.DELETED, State.FAILED})


class Gateway:
    def __init__(self, house: House, connections: Connections, failure: Failure) -> None:
        """``failure``: how the API answers an error on a path of its own."""
        self.house = house
        self.routing = Routing(house)
        self.tracked = connections
        self.pouring = Pouring()
        self.scheme = house.settings.public_scheme
        self.served_ports = frozenset({ENVD_PORT, house.settings.mcp_port})
        """Ports that the app behind answers, whatever listens in the sandbox."""
        self._failure = failure
        self._access = Access(house.accounts, house.tokens, house.clock)
        self._connections: Counter[str] = Counter()
        self._strangers = 0
        """Connections to public ports by those who have shown nothing."""

    def check_form(self, request: PortRequest) -> None:
        """On the API's own origin nothing of a sandbox is shown or run; nobody learns here what exists."""
        to = request.destination
        if to.form is not Form.HOST and shows_or_runs(request):
            url = None if to.by_id else self.house.settings.port_url(to.key, to.port)
            raise answers.not_for_pages(url, worker=request.header("service-worker") is not None)

    async def find(self, destination: Destination) -> Sandbox:
        """Raises SandboxNotFound."""
        if destination.by_id:
            sandbox = await self.house.rows.get(destination.key)
        else:
            sandbox = await self.house.controller.by_key(destination.key)
        if sandbox is None or sandbox.state in _GONE:
            raise errors.SandboxNotFound.by_id(destination.key)
        return sandbox

    async def admit(self, request: PortRequest, sandbox: Sandbox, *, secure: bool) -> Admitted:
        try:
            return await self._access.check(request, sandbox, secure=secure)
        except Refused as refused:
            if request.destination.by_id:
                raise errors.SandboxNotFound.by_id(request.destination.key) from None
            raise answers.refused(refused) from None

    async def who_asks(self, forwarded: Forwarded) -> Principal | None:
        """Whose key was sent, if any; what it opens is for the other server to say."""
        return (await self._access.principal(forwarded))[0]

    def failed(self, forwarded: Forwarded, error: errors.PaddockError) -> answers.Answer:
        if forwarded.destination is None:
            return self._failure(forwarded.path, error)
        return self.refused(forwarded, answers.unavailable(error))

    def refused(self, forwarded: Forwarded, refusal: answers.Refusal) -> answers.Answer:
        to = forwarded.destination
        as_html = "text/html" in (forwarded.header("accept") or "")
        return refusal.answer(to.key if to else "", to.form if to else Form.PATH, as_html=as_html)

    async def reach(self, visit: Visit, port: int, *, for_a_page: bool = False) -> Upstream:
        """A connection to the port; a service that is registered for it is started where nothing listens yet.

        A person is not kept before an empty window: a page says after a moment that it is starting, and looks again.
        """
        use = await visit.enter()
        try:
            return await dial(use.machine, port)
        except errors.Conflict:
            await self._start_service(visit, use, port, for_a_page)
        try:
            return await dial(use.machine, port)
        except errors.Conflict:
            raise answers.port_closed(port) from None

    async def _start_service(self, visit: Visit, use: Use, port: int, for_a_page: bool) -> None:
        """Nobody answers while it starts, and yet it is work that must not be put to sleep."""
        visit.held = True
        services = self.house.services
        try:
            async with asyncio.timeout(PAGE_SECONDS if for_a_page else None):
                if not await services.reach(use, port):
                    raise answers.port_closed(port)
        except TimeoutError:  # the start itself goes on: it is nobody's in particular
            raise answers.starting(port, await services.title(use.sandbox.sandbox_id, port)) from None
        except errors.SandboxNotFound:  # deleted meanwhile: told as always, without the id that is not the caller's
            raise
        except errors.PaddockError as error:
            raise answers.not_started(port, await services.title(use.sandbox.sandbox_id, port), error) from error
        finally:
            visit.held = False

    def counted_forward(self, forwarded: Forwarded, *, proven: bool) -> AbstractContextManager[None]:
        """Requests for the API are not counted by sandbox here either."""
        return nullcontext() if forwarded.destination is None else self.counted(forwarded.key, proven=proven)

    @contextmanager
    def counted(self, key: str, *, proven: bool) -> Iterator[None]:
        """One more connection to the sandbox of this key, if there may be one. ``proven``: by somebody who has shown
        an API key."""
        in_all = self.tracked.limits.in_all
        most = min(MOST_CONNECTIONS, max(1, in_all // 4))
        if self._connections[key] >= most:
            raise answers.too_many(f"The sandbox has {most} open connections, and may not have more.")
        if not proven and self._strangers >= in_all // 2:
            raise answers.too_many("There are too many connections to public ports. Try again in a moment.")
        self._connections[key] += 1
        self._strangers += not proven
        try:
            yield
        finally:
            self._strangers -= not proven
            self._connections[key] -= 1
            if not self._connections[key]:
                del self._connections[key]


def explain(error: errors.PaddockError) -> answers.Refusal:
    """What the client is told about a sandbox that could not be entered."""
    match error:
        case errors.NotFound() | errors.Asleep() | errors.SandboxGone() | errors.SandboxFailed():
            return answers.not_found()
        case errors.TooManyRequests():
            return answers.too_many(error.message)
        case errors.Conflict():
            return answers.transitioning()
        case _:
            return answers.unavailable(error)
