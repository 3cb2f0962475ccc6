"""Links and tickets, which give access to a port without an API key."""

from __future__ import annotations

from paddock.api.auth import Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.clock import iso
from paddock.models import CreateLink, CreateTicket, LinkAnswer, TicketAnswer

router = guarded_router("ports", "/sandboxes/{sandbox_id}")


@router.post("/links")
async def create_link(body: CreateLink, sandbox_id: SandboxIdHere, caller: Calling) -> LinkAnswer:
    """A URL that gives access to one port until it expires. It cannot be revoked."""
    link = await caller.context.port_links.link(caller.who, sandbox_id, body.port, body.ttl)
    return LinkAnswer(
        sandbox_id=sandbox_id, port=body.port, url=link.url, path=link.path, expires_at=iso(link.expires_at)
    )


@router.post("/tickets")
async def create_ticket(body: CreateTicket, sandbox_id: SandboxIdHere, caller: Calling) -> TicketAnswer:
    """A single-use ticket, valid for one minute: for a port, or without a port for a WebSocket of this API, because
    browsers cannot send a key with it."""
    ticket = await caller.context.port_links.ticket(caller.who, sandbox_id, body.port)
    return TicketAnswer(
        sandbox_id=sandbox_id,
        port=body.port,
        ticket=ticket.token,
        url=None if body.port is None else ticket.url,
        expires_at=iso(ticket.expires_at),
    )
