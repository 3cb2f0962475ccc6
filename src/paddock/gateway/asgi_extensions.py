"""What ``GatewayProtocol`` offers the app beyond ASGI, as extensions of a request's scope."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from paddock.accounts.accounts import Principal
from paddock.errors import SandboxElsewhere

DIRECT_BODY: Final = "paddock.direct_body"
"""A :class:`~paddock.gateway.direct_upload.DirectBody`, where the body is large and its length is known."""
CUT: Final = "paddock.cut"
"""A function that ends the connection as it is, for an answer that cannot be finished."""
TRACKED: Final = "paddock.connection"
"""The connection's entry among those that the server holds: :class:`~paddock.gateway.connections.TrackedConnection`."""

FORWARD: Final = "paddock.forward"
"""A function that has a request answered by another server,
:meth:`~paddock.gateway.protocol.GatewayProtocol.forward`."""

ASK: Final = "paddock.ask"
"""A function that asks another server for a part of the answer, :func:`~paddock.gateway.forwarding.ask`."""

FORWARDED_TO: Final = "forwarded_to"
"""Where a scope's state has the node whose server has answered."""


async def forwarded(scope: Scope, problem: SandboxElsewhere, body: bytes | None) -> bool:
    """Whether another server has answered the request, on this connection; then there is nothing left to answer.

    ``body`` is all of it, or None where none of it was read. False where there is no way to that server, or the request
    has come from another server already: then the problem is the answer.
    """
    forward, node = scope.get("extensions", {}).get(FORWARD), problem.details["node"]
    if forward is None or not await forward(node, body):
        return False
    scope.setdefault("state", {})[FORWARDED_TO] = node
    return True


async def asked(scope: Scope, node_id: str, target: str) -> bytes | None:
    """The body of another server's answer to the same caller's GET of this target. None where there is no way to that
    server, or it refuses, or the request has come from another server already."""
    ask = scope.get("extensions", {}).get(ASK)
    answer: bytes | None = None if ask is None else await ask(node_id, target.encode())
    return answer


def prove(scope: Scope, who: Principal) -> None:
    """This request has shown a key of this user's, or a token that stands for one: its connection is among the last to
    go. Raises TooManyRequests where as many are at work for him as may be."""
    tracked = scope.get("extensions", {}).get(TRACKED)
    if tracked is not None:
        tracked.work_for(who.user_id, limited=not who.is_admin)
