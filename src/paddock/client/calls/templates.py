"""What sandboxes can be made from."""

from __future__ import annotations

from paddock.client.answers import Template
from paddock.client.call import Call, listed


def list_templates() -> Call[list[Template]]:
    """The templates of every provider of the server; for ``docker`` these are images."""
    return Call(method="GET", path="/templates", read=listed(Template, "templates"))
