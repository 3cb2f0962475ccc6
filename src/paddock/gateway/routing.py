"""Requests for sandboxes of other nodes: to which server they go, and what servers tell each other about them.

Any server may be asked for any sandbox. One that has not got it passes the request on, as it came, to the server that
has, whose address is in the ``nodes`` table and nowhere else. It is that server that reads the request, asks for keys,
links and cookies, and answers. A request is passed on once: what says that it was passed on already is answered where
it arrived, whoever said so.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

import structlog

from paddock import errors, ids
from paddock.gateway.address import Destination, find_destination
from paddock.gateway.request import FORWARDED_HEADER, ClientInfo, SingleHeaders, named
from paddock.gateway.upstream import Upstream, dial_server
from paddock.http1.head import NO_BODY, Body, Framing, RequestHead, parse_request, write_head
from paddock.server.context import ServerContext

_API_PATH = re.compile(
    r"/(?:sandboxes|e2b/(?:v2/)?sandboxes|daytona/api/sandbox|daytona/toolbox)/(?P<name>[^/]+)(?=/|$)"
)
_FORWARDED = FORWARDED_HEADER.encode()
_TOLD = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
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

    @property
    def upgrade(self) -> bytes | None:
        return self.head.upgrade()

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.head.headers if key.lower() == wanted), None)

    def encode(self, caller: ClientInfo, proof: str) -> bytes:
        """The head as the other server gets it: the client's own, and who that is. ``proof``: that a server says so."""
        dropped = _TOLD | {_FORWARDED} | ({b"expect"} if self.given else set())
        headers = [(name, value) for name, value in self.head.end_to_end() if name.lower() not in dropped]
        if not any(name.lower() == b"host" for name, _ in headers):
            headers.insert(0, (b"Host", b"localhost"))  # HTTP/1.0 need not name one
        headers += [*_told(self.head, caller), (FORWARDED_HEADER.encode(), proof.encode()), *self.whole.header()]
        if self.upgrade is not None:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", self.upgrade)]
        return write_head(b"%b %b HTTP/1.1" % (self.head.method, self.head.target), headers)


class Routing:
    def __init__(self, context: ServerContext) -> None:
        self._nodes = context.nodes
        self._rows = context.row_cache
        self._tokens = context.tokens
        self._places: dict[str, _NodeAddress] = {}
        self._down_until: dict[str, float] = {}

    def concerns(self, head: bytes) -> bool:
        """Whether it must be looked up whose request this is. Costs nothing where there is no other server."""
        if not self._nodes.has_peers or (found := _read(head)) is None or not found.sandbox:
            return False
        place = self._places.get(found.sandbox)
        return place is None or not self._nodes.is_ours(place.node_id)

    async def find(self, head: bytes) -> ForwardedRequest | None:
        """The request, on its way to the server that it is for. None where it is to be answered here: it is for a
        sandbox of ours or of nobody, or the other server is not there."""
        if not self._nodes.has_peers or (found := _read(head)) is None or not found.sandbox:
            return None
        place = self._places.get(found.sandbox)
        if place is not None and self._nodes.is_ours(place.node_id):
            return None
        if place is None or self._nodes.peer(place.node_id) is None:
            place = await self._look_up(found.sandbox)
        if place is None or (upstream := await self._connect(place.node_id)) is None:
            return None
        return ForwardedRequest(
            found.head, found.body, found.destination, found.path, place.node_id, upstream, key=place.key
        )

    async def take_up(
        self, head: bytes, node_id: str, body: bytes | None, unread: bytes, left: int | None
    ) -> ForwardedRequest | None:
        """The same for a request that the app has, and found to be for that node.

        ``body`` is all of it, or None where the app has read none: then ``unread`` has come, and ``left`` bytes have
        not (None: nobody knows how many).
        """
        if (found := _read(head)) is None:
            return None
        whole, given = found.body, unread if body is None else body
        if body is not None and whole != NO_BODY:
            whole = Body(Framing.LENGTH, len(body))
        elif whole != NO_BODY and (left is None or whole != Body(Framing.LENGTH, len(unread) + left)):
            return None
        if (upstream := await self._connect(node_id)) is None:
            return None
        return ForwardedRequest(found.head, whole, found.destination, found.path, node_id, upstream, given=given)

    def proof(self) -> str:
        return self._tokens.sign_forward()

    def told_by(self, head: RequestHead, caller: ClientInfo) -> ClientInfo:
        """Who has sent this. What another server passes on comes from whom it says: it is a proxy in front of us."""
        return replace(caller, proxy=True) if not caller.proxy and self._proven(head) else caller

    def comes_from_server(self, head: bytes) -> bool:
        if _FORWARDED not in head or self._nodes.ids is None:
            return False
        try:
            return self._proven(parse_request(head))
        except errors.MalformedRequest:
            return False

    def _proven(self, head: RequestHead) -> bool:
        given = [value for name, value in head.headers if name.lower() == _FORWARDED]
        return len(given) == 1 and self._tokens.check_forward(given[0].decode("latin-1"))

    async def _look_up(self, name: str) -> _NodeAddress | None:
        try:
            row = await (self._rows.get(name) if ids.is_sandbox_id(name) else self._rows.by_key(name))
        except errors.StoreUnavailable:  # said by whoever answers here
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


@dataclass(frozen=True, slots=True)
class _Found:
    head: RequestHead
    body: Body
    destination: Destination | None
    path: str
    sandbox: str
    """By its id or its key; empty where the head does not say."""


def _read(data: bytes) -> _Found | None:
    """None where it must not be passed on, or cannot be: what is wrong with it is for its reader here to say."""
    try:
        head = parse_request(data)
        if any(name.lower() == _FORWARDED for name, _ in head.headers):
            return None
        host, target = named(head)
        path = target.partition(b"?")[0].decode("latin-1")
        destination = find_destination(host, SingleHeaders(head), path)
        return _Found(head, head.body(), destination, path, _sandbox(destination, path))
    except errors.MalformedRequest:
        return None


def _sandbox(destination: Destination | None, path: str) -> str:
    if destination is not None:
        return destination.key
    match = _API_PATH.match(unquote(path))
    name = match["name"] if match is not None else ""
    if ids.is_sandbox_id(name):
        return name
    key = name.partition("-")[0]  # E2B's older clients put a client id behind it
    return key if ids.is_sandbox_key(key) else ""


def _told(head: RequestHead, caller: ClientInfo) -> list[tuple[bytes, bytes]]:
    """What proxies in front of us said counts, and we are one more."""
    said: dict[bytes, list[bytes]] = {name: [] for name in _TOLD}
    for name, value in head.headers if caller.proxy else ():
        if name.lower() in _TOLD:
            said[name.lower()].append(value)
    chain = [*said[b"x-forwarded-for"], *([caller.address.encode()] if caller.address else [])]
    told = {
        b"X-Forwarded-For": b", ".join(chain),
        b"X-Forwarded-Proto": next(iter(said[b"x-forwarded-proto"]), caller.scheme.encode()),
        b"X-Forwarded-Host": next(iter(said[b"x-forwarded-host"]), b""),
    }
    return [(name, value) for name, value in told.items() if value]
