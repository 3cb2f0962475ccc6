"""What the front door offers the app beyond ASGI, among the extensions of a request's scope."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from paddock.lifecycle.accounts import Principal

DIRECT_BODY: Final = "paddock.direct_body"
"""A :class:`~paddock.gateway.direct.DirectBody`, where the body is large and its length is known."""
CUT: Final = "paddock.cut"
"""A function that ends the connection as it is, for an answer that cannot be finished."""
TRACKED: Final = "paddock.connection"
"""The connection's entry among those that the server holds: :class:`~paddock.gateway.connections.TrackedConnection`."""


def prove(scope: Scope, who: Principal) -> None:
    """This request has shown a key of this user's, or a token that stands for one: its connection is among the last to
    go. Raises TooManyRequests where as many are at work for him as may be."""
    tracked = scope.get("extensions", {}).get(TRACKED)
    if tracked is not None:
        tracked.work_for(who.user_id, limited=not who.is_admin)
