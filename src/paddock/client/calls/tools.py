"""The tools of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import Done, McpServer, ToolInfo, ToolResult
from paddock.client.call import ApiCall, answer, listed
from paddock.client.calls.sandboxes import SERVER_COMMAND_TIMEOUT, sandbox_path
from paddock.client.retry import Repeat


def list_tools(sandbox_id: str) -> ApiCall[list[ToolInfo]]:
    """The available tools: names, descriptions, schemas."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "tools"), read=listed(ToolInfo, "tools"))


def call_tool(
    sandbox_id: str, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
) -> ApiCall[ToolResult]:
    """Call one tool and wait for its end. A failing tool is an answer (see ``failed``). Never retried.

    ``timeout``: maximum seconds of the call, if that is more than a command may take.
    """
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tools", tool),
        json={"arguments": dict(arguments or {})},
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(ToolResult),
        repeat=Repeat.UNSENT,
    )


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
