"""A request on its way to another server, and that server's answer back: bytes as they come, nothing collected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from paddock import errors
from paddock.gateway.exchange import HEAD_BYTES, HttpExchange, UpstreamClosed, UpstreamMalformed
from paddock.gateway.origin import RawHeaders
from paddock.gateway.request import ClientInfo
from paddock.gateway.routing import ForwardedRequest, Routing
from paddock.http1.head import Framing, ResponseHead, parse_response
from paddock.http1.stream_socket import StreamSocket

_ASK_TIMEOUT_S = 10.0
_MAX_ANSWER = 1 << 20
_NOBODY = ClientInfo("", "http", proxy=False)
"""The question is our own; whose it is, its key says."""

log = structlog.get_logger(__name__)


class NoCounter:
    """What is moved is counted by the server that has the sandbox."""

    held = False

    def sent(self, count: int) -> None: ...

    def received(self, count: int) -> None: ...


class ForwardExchange(HttpExchange):
    def __init__(self, client: StreamSocket, forwarded: ForwardedRequest, let_in: Callable[[], None]) -> None:
        """``let_in`` is called when the other server answers with what was asked for, not with a refusal."""
        super().__init__(client, forwarded.upstream.wire, forwarded, NoCounter(), forwarded.given)
        self._let_in = let_in

    def _present(self, response: ResponseHead) -> RawHeaders:
        if response.status < 400:
            self._let_in()
        return super()._present(response)


async def ask(routing: Routing, head: bytes, node_id: str, target: bytes) -> bytes | None:
    """The body of what that node's server answers to the sender of this GET, were it for another target. For whoever
    makes it a part of the answer; None where there is no way to that server, or it does not answer 200."""
    asked = await routing.take_up(head, node_id, b"", b"", 0)
    if asked is None:
        return None
    asked = replace(asked, head=replace(asked.head, target=target))
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            await asked.upstream.wire.send(asked.encode(_NOBODY, routing.proof()))
            return await _read_answer(asked)
    except (OSError, errors.MalformedRequest) as trouble:  # a timeout is an OSError, too
        log.warning("another server did not answer", node=node_id, problem=str(trouble) or "not in time")
        return None
    finally:
        await asked.upstream.close()


async def _read_answer(asked: ForwardedRequest) -> bytes | None:
    wire = asked.upstream.wire
    head = await wire.head(HEAD_BYTES)
    response = None if head is None else parse_response(head)
    if response is None or response.status != 200:
        return None
    body = response.body(asked.head.method)
    if body.framing is not Framing.LENGTH or body.length > _MAX_ANSWER:
        return None
    while len(wire.ahead) < body.length:
        if not await wire.fill():
            return None
    return bytes(wire.ahead[: body.length])


def unanswered(forwarded: ForwardedRequest, problem: UpstreamClosed | UpstreamMalformed) -> errors.PaddockError:
    return errors.ProviderUnavailable(
        f"The Paddock server on the machine of this sandbox {problem.message}. What was asked for may have been done, "
        "or not: look before you ask again.",
        details={"node": forwarded.node_id},
    )
