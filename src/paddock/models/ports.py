"""Ways to a port of a sandbox, on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from paddock.models.base import Request, Success
from paddock.models.values import _whole

Port = Annotated[int, Field(ge=1, le=65535, examples=[3000]), BeforeValidator(_whole)]

DAY = 86_400
MAX_LINK_SECONDS = 30 * DAY


class CreateLink(Request):
    port: Port
    ttl: Annotated[int, Field(ge=1, le=MAX_LINK_SECONDS), BeforeValidator(_whole)] = Field(
        default=DAY, description="Seconds for which it is good."
    )


class LinkAnswer(Success):
    sandbox_id: str
    port: int
    url: str = Field(description="Opens the port for whoever has it, until it expires.")
    path: str = Field(description="The same on the API's own host, for where sandboxes have no host names.")
    expires_at: str


class CreateTicket(Request):
    port: Port | None = Field(
        default=None,
        description="A port of the sandbox, or none: then the ticket is good for a WebSocket of this API about it.",
    )


class TicketAnswer(Success):
    sandbox_id: str
    port: int | None
    ticket: str = Field(description="Good once, as `paddock_ticket` in a port's query or `ticket` in a WebSocket's.")
    url: str | None = Field(description="The port's address with the ticket in it.")
    expires_at: str
