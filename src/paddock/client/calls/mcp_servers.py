"""The user's own MCP servers, whose tools are added to the sandbox's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import Done, McpServer
from paddock.client.call import ApiCall, answer, listed
from paddock.client.calls.sandboxes import sandbox_path


def put_mcp_server(sandbox_id: str, name: str, server: Mapping[str, Any]) -> ApiCall[McpServer]:
    """Add or change a server: ``command``, ``args``, ``env``, ``cwd`` or ``url``, ``headers``, or ``preset``, as in an
    ``.mcp.json``."""
    return ApiCall(
        method="PUT", path=sandbox_path(sandbox_id, "mcp-servers", name), json=dict(server), read=answer(McpServer)
    )


def put_mcp_servers(sandbox_id: str, document: Mapping[str, Any]) -> ApiCall[list[McpServer]]:
    """Add or change all servers of a document with ``mcpServers``. Other registered servers are not changed."""
    return ApiCall(
        method="PUT",
        path=sandbox_path(sandbox_id, "mcp-servers"),
        json=dict(document),
        read=listed(McpServer, "servers"),
    )


def list_mcp_servers(sandbox_id: str) -> ApiCall[list[McpServer]]:
    """The servers with their status and tools. Does not resume the sandbox."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "mcp-servers"), read=listed(McpServer, "servers"))


def get_mcp_server(sandbox_id: str, name: str) -> ApiCall[McpServer]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(McpServer))


def delete_mcp_server(sandbox_id: str, name: str) -> ApiCall[Done]:
    """Remove a server, and stop it if it runs."""
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers", name), read=answer(Done))


def delete_mcp_servers(sandbox_id: str) -> ApiCall[Done]:
    """Remove all registered servers."""
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "mcp-servers"), read=answer(Done))
