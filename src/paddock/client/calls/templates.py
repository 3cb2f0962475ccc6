"""The templates from which sandboxes are created."""

from __future__ import annotations

from paddock.client.answers import Template
from paddock.client.call import ApiCall, listed


def list_templates() -> ApiCall[list[Template]]:
    """The templates of all providers of the server; for ``docker`` these are images."""
    return ApiCall(method="GET", path="/templates", read=listed(Template, "templates"))
