"""Requests that another server answers: both are passed on as they come, nothing is collected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from paddock import errors
from paddock.gateway.request import ClientInfo, IncomingRequest
from paddock.gateway.routing import ForwardedRequest, Routing
from paddock.http1.exchange import HttpExchange, UpstreamClosed, UpstreamMalformed
from paddock.http1.head import Framing, HeaderList, ResponseHead, parse_response
from paddock.http1.limits import MAX_HEAD_BYTES
from paddock.http1.stream_socket import StreamSocket

_ASK_TIMEOUT_S = 10.0
_MAX_ANSWER = 1 << 20
_NOBODY = ClientInfo("", "http", proxy=False)
"""The request is our own; its key shows the user."""

log = structlog.get_logger(__name__)


class NoCounter:
    """What is moved is counted by the server that has the sandbox."""

    held = False

    def sent(self, count: int) -> None: ...

    def received(self, count: int) -> None: ...


class ForwardExchange(HttpExchange):
    def __init__(self, client: StreamSocket, forwarded: ForwardedRequest, admit: Callable[[], None]) -> None:
        """``admit`` is called when the other server answers with what was asked for, not with a refusal."""
        server, body = forwarded.upstream.stream, forwarded.body
        super().__init__(client, server, forwarded.head, body, NoCounter(), forwarded.given)
        self._admit = admit

    def response_headers(self, response: ResponseHead) -> HeaderList:
        if response.status < 400:
            self._admit()
        return super().response_headers(response)


async def ask(routing: Routing, request: IncomingRequest, node_id: str, target: bytes) -> bytes | None:
    """The body of what that node's server answers to the sender of this GET, were it for another target. For whoever
    makes it a part of the answer; None where there is no way to that server, or it does not answer 200."""
    asked = await routing.take_up(request, node_id, b"", b"", 0)
    if asked is None:
        return None
    asked = replace(asked, head=replace(asked.head, target=target))
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            await asked.upstream.stream.send(asked.encode(_NOBODY, routing.proof()))
            return await _read_answer(asked)
    except (OSError, errors.MalformedRequest) as trouble:  # a timeout is an OSError, too
        log.warning("another server did not answer", node=node_id, problem=str(trouble) or "not in time")
        return None
    finally:
        await asked.upstream.close()


async def _read_answer(asked: ForwardedRequest) -> bytes | None:
    server = asked.upstream.stream
    head = await server.head(MAX_HEAD_BYTES)
    response = None if head is None else parse_response(head)
    if response is None or response.status != 200:
        return None
    body = response.body(asked.head.method)
    if body.framing is not Framing.LENGTH or body.length > _MAX_ANSWER:
        return None
    while len(server.ahead) < body.length:
        if not await server.fill():
            return None
    return bytes(server.ahead[: body.length])


def unanswered(forwarded: ForwardedRequest, problem: UpstreamClosed | UpstreamMalformed) -> errors.PaddockError:
    return errors.ProviderUnavailable(
        f"The Paddock server on the machine of this sandbox {problem.message}. What was asked for may have been done, "
        "or not: look before you ask again.",
        details={"node": forwarded.node_id},
    )
