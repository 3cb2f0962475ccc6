"""The user's own MCP servers, whose tools stand among the sandbox's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import Done, McpServer
from paddock.client.call import Call, answer, listed
from paddock.client.calls.sandboxes import sandbox_path


def put_mcp_server(sandbox_id: str, name: str, server: Mapping[str, Any]) -> Call[McpServer]:
    """Register a server, or change one: ``command``, ``args``, ``env``, ``cwd`` or ``url``, ``headers``, or ``preset``,
    as in an ``.mcp.json``."""
    return Call(
        method="PUT", path=sandbox_path(sandbox_id, "mcp-servers", name), json=dict(server), read=answer(McpServer)
    )


def put_mcp_servers(sandbox_id: str, document: Mapping[str, Any]) -> Call[list[McpServer]]:
    """Register every server of a document with ``mcpServers``. Others that were registered before stay."""
    return Call(
        method="PUT",
        path=sandbox_path(sandbox_id, "mcp-servers"),
        json=dict(document),
        read=listed(McpServer, "servers"),
    )


def list_mcp_servers(sandbox_id: str) -> Call[list[McpServer]]:
    """With how each is, and what tools it has. Wakes nobody."""
    return Call(method="GET", path=sandbox_path(sandbox_id, "mcp-servers"), read=listed(McpServer, "servers"))


def get_mcp_server(sandbox_id: str, name: str) -> Call[McpServer]:
    return Call(method="GET", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(McpServer))


def delete_mcp_server(sandbox_id: str, name: str) -> Call[Done]:
    """And end it, if it runs."""
    return Call(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(Done))


def delete_mcp_servers(sandbox_id: str) -> Call[Done]:
    """All that were registered."""
    return Call(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers"), read=answer(Done))
