"""Requests for sandboxes of other nodes: to which server they go, and how servers recognise each other.

Any server may be asked for any sandbox. One that does not have it forwards the request unchanged to the server that
has, whose address is in the ``nodes`` table and nowhere else. That server checks keys, links and cookies, and answers.
A request is forwarded once: one with the header of a forwarded request is answered where it arrived, whether that
header is valid or not.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

import structlog

from paddock import errors, ids
from paddock.gateway.address import Destination
from paddock.gateway.request import FORWARDED_HEADER, ClientInfo, IncomingRequest
from paddock.gateway.upstream import Upstream, dial_server
from paddock.http1.head import NO_BODY, Body, Framing, HeaderList, RequestHead, write_head
from paddock.server.context import ServerContext

_API_PATH = re.compile(
    r"/(?:sandboxes|e2b/(?:v2/)?sandboxes|daytona/api/sandbox|daytona/toolbox)/(?P<name>[^/]+)(?=/|$)"
)
_FORWARDED = FORWARDED_HEADER.encode()
_REPLACED = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
_MAX_PLACES = 10_000
_DOWN_S = 1.0
"""After a server could not be reached, requests for it are answered here for so long, instead of each waiting."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _NodeAddress:
    """Where a sandbox lives, which it does for its whole life."""

    key: str
    node_id: str


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that another server answers, and the connection to it."""

    head: RequestHead
    whole: Body
    destination: Destination | None
    """The port of a sandbox that it is for; None where it is for the API."""
    path: str
    node_id: str
    upstream: Upstream
    key: str = ""
    """The sandbox's, where the head says which one it is."""
    given: bytes = b""
    """What was read of the body already."""

    @property
    def body(self) -> Body:
        """What is still to come of it."""
        return replace(self.whole, length=self.whole.length - len(self.given)) if self.given else self.whole

    def header(self, name: str) -> str | None:
        return self.head.header(name)

    def encode(self, caller: ClientInfo, proof: str) -> bytes:
        """The head as the other server gets it: the client's own, and who that is. ``proof``: that a server sent it."""
        dropped = _REPLACED | {_FORWARDED} | ({b"expect"} if self.given else set())
        headers = [(name, value) for name, value in self.head.end_to_end() if name.lower() not in dropped]
        if not any(name.lower() == b"host" for name, _ in headers):
            headers.insert(0, (b"Host", b"localhost"))  # HTTP/1.0 need not name one
        headers += [*_forwarded_headers(self.head, caller), (_FORWARDED, proof.encode()), *self.whole.headers()]
        if (protocol := self.head.upgrade()) is not None:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", protocol)]
        return write_head(b"%b %b HTTP/1.1" % (self.head.method, self.head.target), headers)


class Routing:
    def __init__(self, context: ServerContext) -> None:
        self._nodes = context.nodes
        self._rows = context.row_cache
        self._tokens = context.tokens
        self._places: dict[str, _NodeAddress] = {}
        self._down_until: dict[str, float] = {}

    def reads_all(self, data: bytes) -> bool:
        """Whether requests for the API must be read here, too: another server may be the one to answer, or the one that
        has sent this."""
        return self._nodes.has_peers or (_FORWARDED in data and self._nodes.ids is not None)

    def concerns(self, request: IncomingRequest) -> bool:
        """Whether it must be looked up which server this is for. Costs nothing where there is no other server."""
        name = self._sandbox_elsewhere(request)
        place = self._places.get(name)
        return bool(name) and (place is None or not self._nodes.is_ours(place.node_id))

    async def find(self, request: IncomingRequest) -> ForwardedRequest | None:
        """The request, on its way to the server that it is for. None where it is to be answered here: it is for a
        sandbox of ours or of nobody, or the other server is not there."""
        name = self._sandbox_elsewhere(request)
        place = self._places.get(name)
        if not name or (place is not None and self._nodes.is_ours(place.node_id)):
            return None
        if place is None or self._nodes.peer(place.node_id) is None:
            place = await self._look_up(name)
        if place is None or (upstream := await self._connect(place.node_id)) is None:
            return None
        return ForwardedRequest(
            request.head, request.head.body(), request.destination, request.path, place.node_id, upstream, place.key
        )

    async def take_up(
        self, request: IncomingRequest, node_id: str, body: bytes | None, unread: bytes, left: int | None
    ) -> ForwardedRequest | None:
        """The same for a request that the app has, and found to be for that node.

        ``body`` is all of it, or None where the app has read none: then ``unread`` has come, and ``left`` bytes have
        not (None: nobody knows how many).
        """
        if (whole := _body(request)) is None:
            return None
        given = unread if body is None else body
        if body is not None and whole != NO_BODY:
            whole = Body(Framing.LENGTH, len(body))
        elif whole != NO_BODY and (left is None or whole != Body(Framing.LENGTH, len(unread) + left)):
            return None
        if (upstream := await self._connect(node_id)) is None:
            return None
        head, destination = request.head, request.destination
        return ForwardedRequest(head, whole, destination, request.path, node_id, upstream, given=given)

    def proof(self) -> str:
        return self._tokens.sign_forward()

    def client_of(self, head: RequestHead, caller: ClientInfo) -> ClientInfo:
        """The client of this request. Another server is a trusted proxy in front of us."""
        return replace(caller, proxy=True) if not caller.proxy and self._proven(head) else caller

    def comes_from_server(self, request: IncomingRequest) -> bool:
        return self._nodes.ids is not None and self._proven(request.head)

    def _proven(self, head: RequestHead) -> bool:
        given = [value for name, value in head.headers if name.lower() == _FORWARDED]
        return len(given) == 1 and self._tokens.check_forward(given[0].decode("latin-1"))

    def _sandbox_elsewhere(self, request: IncomingRequest) -> str:
        """The sandbox by its id or its key, where the head says which one it is and another server may have it."""
        return _sandbox(request) if self._nodes.has_peers and _body(request) is not None else ""

    async def _look_up(self, name: str) -> _NodeAddress | None:
        try:
            row = await (self._rows.get(name) if ids.is_sandbox_id(name) else self._rows.by_key(name))
        except errors.StoreUnavailable:  # whoever answers here reports it
            return None
        if row is None or row.node_id is None:
            return None
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        place = self._places[name] = _NodeAddress(row.key, row.node_id)
        return place

    async def _connect(self, node_id: str) -> Upstream | None:
        node, now = self._nodes.peer(node_id), asyncio.get_running_loop().time()
        if node is None or node.url is None or self._down_until.get(node.url, 0.0) > now:
            return None
        try:
            return await dial_server(node.url)
        except OSError as trouble:
            self._down_until[node.url] = asyncio.get_running_loop().time() + _DOWN_S
            log.warning(
                "another server cannot be reached",
                node=node_id,
                url=node.url,
                problem=str(trouble) or "no answer in time",
            )
            return None


def _body(request: IncomingRequest) -> Body | None:
    """None where it must not be forwarded, or cannot be: its reader here answers what is wrong."""
    if request.head.header(FORWARDED_HEADER) is not None:
        return None
    try:
        return request.head.body()
    except errors.MalformedRequest:
        return None


def _sandbox(request: IncomingRequest) -> str:
    if request.destination is not None:
        return request.destination.key
    match = _API_PATH.match(unquote(request.path))
    name = match["name"] if match is not None else ""
    if ids.is_sandbox_id(name):
        return name
    key = name.partition("-")[0]  # E2B's older clients put a client id behind it
    return key if ids.is_sandbox_key(key) else ""


def _forwarded_headers(head: RequestHead, caller: ClientInfo) -> HeaderList:
    """What trusted proxies in front of us sent counts, and we are one more."""
    sent: dict[bytes, list[bytes]] = {name: [] for name in _REPLACED}
    for name, value in head.headers if caller.proxy else ():
        if name.lower() in _REPLACED:
            sent[name.lower()].append(value)
    chain = [*sent[b"x-forwarded-for"], *([caller.address.encode()] if caller.address else [])]
    values = {
        b"X-Forwarded-For": b", ".join(chain),
        b"X-Forwarded-Proto": next(iter(sent[b"x-forwarded-proto"]), caller.scheme.encode()),
        b"X-Forwarded-Host": next(iter(sent[b"x-forwarded-host"]), b""),
    }
    return [(name, value) for name, value in values.items() if value]
