"""The user's own MCP servers, whose tools are added to the sandbox's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from paddock.api.auth import Calling
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.mcp.relay.definitions import masked
from paddock.models import McpDocument, McpServer, McpServerAnswer, McpServerList, Success
from paddock.models.mcp import McpServerName
from paddock.runtime.mcp_servers import McpServersView, McpServerView

router = guarded_router("tools", "/sandboxes/{sandbox_id}/mcp-servers")

NameHere = Annotated[McpServerName, Path()]


@router.get("")
async def list_mcp_servers(sandbox_id: SandboxIdHere, caller: Calling) -> McpServerList:
    """The registered servers, and those of `/workspace/.mcp.json`. Does not resume the sandbox or start a server."""
    return _list(await caller.context.mcp_servers.list(caller.who, sandbox_id))


@router.put("")
async def put_mcp_servers(body: McpDocument, sandbox_id: SandboxIdHere, caller: Calling) -> McpServerList:
    """Add or change all servers of an `.mcp.json`-shaped document. Other registered servers are not changed."""
    return _list(await caller.context.mcp_servers.put(caller.who, sandbox_id, body.servers))


@router.delete("")
async def delete_mcp_servers(sandbox_id: SandboxIdHere, caller: Calling) -> Success:
    """Remove all registered servers, and stop those that run."""
    await caller.context.mcp_servers.remove(caller.who, sandbox_id)
    return Success()


@router.get("/{name}")
async def get_mcp_server(sandbox_id: SandboxIdHere, name: NameHere, caller: Calling) -> McpServerAnswer:
    return _answer(await caller.context.mcp_servers.get(caller.who, sandbox_id, name))


@router.put("/{name}")
async def put_mcp_server(
    body: McpServer, sandbox_id: SandboxIdHere, name: NameHere, caller: Calling
) -> McpServerAnswer:
    """Add or change a server. If the sandbox is running, it is started at once."""
    overview = await caller.context.mcp_servers.put(caller.who, sandbox_id, {name: body})
    return _answer(next(each for each in overview.servers if each.name == name))


@router.delete("/{name}")
async def delete_mcp_server(sandbox_id: SandboxIdHere, name: NameHere, caller: Calling) -> Success:
    """Remove a server, and stop it if it runs."""
    await caller.context.mcp_servers.remove(caller.who, sandbox_id, name)
    return Success()


def _list(overview: McpServersView) -> McpServerList:
    return McpServerList(servers=[_answer(each) for each in overview.servers], problem=overview.problem)


def _answer(shown: McpServerView) -> McpServerAnswer:
    return McpServerAnswer(
        name=shown.name,
        source=shown.source,
        status=shown.status,
        reason=shown.reason,
        tools=list(shown.tools),
        **masked(shown.server),
    )
