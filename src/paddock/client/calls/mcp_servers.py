"""The user's own MCP servers, whose tools stand among the sandbox's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import Done, McpServer
from paddock.client.call import ApiCall, answer, listed
from paddock.client.calls.sandboxes import sandbox_path


def put_mcp_server(sandbox_id: str, name: str, server: Mapping[str, Any]) -> ApiCall[McpServer]:
    """Register a server, or change one: ``command``, ``args``, ``env``, ``cwd`` or ``url``, ``headers``, or ``preset``,
    as in an ``.mcp.json``."""
    return ApiCall(
        method="PUT", path=sandbox_path(sandbox_id, "mcp-servers", name), json=dict(server), read=answer(McpServer)
    )


def put_mcp_servers(sandbox_id: str, document: Mapping[str, Any]) -> ApiCall[list[McpServer]]:
    """Register every server of a document with ``mcpServers``. Others that were registered before stay."""
    return ApiCall(
        method="PUT",
        path=sandbox_path(sandbox_id, "mcp-servers"),
        json=dict(document),
        read=listed(McpServer, "servers"),
    )


def list_mcp_servers(sandbox_id: str) -> ApiCall[list[McpServer]]:
    """With how each is, and what tools it has. Wakes nobody."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "mcp-servers"), read=listed(McpServer, "servers"))


def get_mcp_server(sandbox_id: str, name: str) -> ApiCall[McpServer]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(McpServer))


def delete_mcp_server(sandbox_id: str, name: str) -> ApiCall[Done]:
    """And end it, if it runs."""
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(Done))


def delete_mcp_servers(sandbox_id: str) -> ApiCall[Done]:
    """All that were registered."""
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers"), read=answer(Done))
