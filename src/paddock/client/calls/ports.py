"""Ways to a port of a sandbox for those who have no key."""

from __future__ import annotations

from paddock.client.answers import Link, Ticket
from paddock.client.call import ApiCall, answer, given
from paddock.client.calls.sandboxes import sandbox_path
from paddock.client.retry import Repeat


def create_link(sandbox_id: str, port: int, *, ttl: int | None = None) -> ApiCall[Link]:
    """A URL that opens this port for whoever has it, for ``ttl`` seconds (a day)."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "links"),
        json=given(port=port, ttl=ttl),
        read=answer(Link),
    )


def create_ticket(sandbox_id: str, port: int | None = None) -> ApiCall[Ticket]:
    """Good once, within a minute: for a port, or without one for a WebSocket of the API about this sandbox."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tickets"),
        json=given(port=port),
        read=answer(Ticket),
        repeat=Repeat.UNSENT,
    )
