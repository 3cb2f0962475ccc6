"""Every attack on a server by name, and what a success would mean. ``docs/security.md`` has the same list."""

from __future__ import annotations

import httpx

from paddock.doctor.attempts import AttemptOutcome, Verdict
from paddock.doctor.server import connections, endless, network, pages, quotas, remains, text
from paddock.doctor.server.target import Attack, NotTried, Target

SERVER_ATTACKS: dict[str, tuple[str, Attack]] = {
    "server-page": ("a page of a sandbox runs on the API's origin, and uses the viewer's keys", pages.page),
    "server-page-headers": ("a page's headers take effect on the API's origin, or on the whole domain", pages.headers),
    "server-page-links": ("a link, a ticket or a cookie opens more than the port that it was made for", pages.links),
    "server-page-files": ("a file of a sandbox becomes a page of the API's origin", pages.files),
    "server-private-network": ("a member opens the operator's network to a sandbox", network.by_network),
    "server-private-names": ("a name gives a sandbox access to the operator's network", network.by_name),
    "server-private-mcp": ("a member's MCP server is a host in the operator's network", network.by_mcp_server),
    "server-oversized": ("a sandbox is given more than the machine has", quotas.oversized),
    "server-paused": ("paused sandboxes are not counted against a quota", quotas.paused),
    "server-unread": ("answers that are not read fill the server's memory", quotas.unread),
    "server-costly-text": (
        "text that is costly to process keeps the server from answering others",
        text.fields_and_lines,
    ),
    "server-costly-git": ("the output of a program named git keeps the server from answering others", text.git),
    "server-costly-listing": (
        "a directory with very many entries keeps the server from answering others",
        text.listing,
    ),
    "server-costly-mcp": ("a remote MCP server's answer keeps the server from answering others", text.mcp_answer),
    "server-endless-heads": (
        "a server in a sandbox that never completes its response keeps the server from answering others",
        endless.heads,
    ),
    "server-tiny-chunks": ("bodies in chunks of one byte keep the server from answering others", endless.tiny_chunks),
    "server-pipelining": (
        "pipelined refused requests keep the server from answering others",
        endless.pipelining,
    ),
    "server-tiny-frames": ("empty frames of a WebSocket keep the server from answering others", endless.tiny_frames),
    "server-silent-connections": ("idle connections keep users with a key out", connections.silent),
    "server-undeletable": ("a sandbox resists its deletion", remains.undeletable),
    "server-secrets": (
        "passwords, tickets, keys and variables of deleted sandboxes are left in logs and in the database",
        remains.secrets_kept,
    ),
}


async def attack_server(target: Target, name: str) -> AttemptOutcome:
    """Run one attack, and delete the sandboxes that it created."""
    danger, attack = SERVER_ATTACKS[name]
    try:
        problem = await attack(target)
        await target.clear()
    except NotTried as missing:
        return AttemptOutcome(name, "member", Verdict.NOT_TRIED, str(missing))
    except (httpx.HTTPError, OSError) as trouble:
        problem = f"the server did not answer as it should: {trouble or type(trouble).__name__}"
    if problem is None:
        return AttemptOutcome(name, "member", Verdict.REFUSED, f"not so: {danger}")
    return AttemptOutcome(name, "member", Verdict.NOT_REFUSED, problem)
