"""``paddock inspect``: everything that is known about a sandbox, as one document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.session import CliSession, command
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable


@command
def inspect(session: CliSession, sandbox_id: SandboxId) -> None:
    """Print everything that is known about a sandbox, as JSON. Does not wake it."""
    client = session.client
    document: dict[str, Any] = dict(client.get_status(sandbox_id))
    del document["message"]
    parts: dict[str, Callable[[str], Any]] = {
        "processes": client.list_processes,
        "metrics": client.metrics,
        "services": client.list_services,
        "mcp_servers": client.list_mcp_servers,
        "isolation_report": client.get_isolation,
        "egress_report": client.get_egress,
        "usage": client.get_sandbox_usage,
    }
    unknown: dict[str, str] = {}
    for name, look in parts.items():
        document[name] = None
        if name in ("processes", "metrics") and document["status"] != "running":
            unknown[name] = f"The sandbox is {document['status']}."
            continue
        try:
            document[name] = look(sandbox_id)
        except PaddockError as error:
            unknown[name] = error.message
    output.print_json({**document, "unknown": unknown})
