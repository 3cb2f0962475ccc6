"""What the front door offers the app beyond ASGI, among the extensions of a request's scope."""

from __future__ import annotations

from typing import Final

DIRECT_BODY: Final = "paddock.direct_body"
"""A :class:`~paddock.gateway.direct.DirectBody`, where the body is large and its length is known."""
CUT: Final = "paddock.cut"
"""A function that ends the connection as it is, for an answer that cannot be finished."""
