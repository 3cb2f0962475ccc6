"""Access to a port of a sandbox without an API key."""

from __future__ import annotations

from paddock.client.answers import Link, Ticket
from paddock.client.call import ApiCall, answer, given
from paddock.client.calls.sandboxes import sandbox_path
from paddock.client.retry import Repeat


def create_link(sandbox_id: str, port: int, *, ttl: int | None = None) -> ApiCall[Link]:
    """A URL that gives access to this port for ``ttl`` seconds (default: one day)."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "links"),
        json=given(port=port, ttl=ttl),
        read=answer(Link),
    )


def create_ticket(sandbox_id: str, port: int | None = None) -> ApiCall[Ticket]:
    """A single-use ticket, valid for one minute: for a port, or without a port for a WebSocket of this sandbox's
    API."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tickets"),
        json=given(port=port),
        read=answer(Ticket),
        repeat=Repeat.UNSENT,
    )
