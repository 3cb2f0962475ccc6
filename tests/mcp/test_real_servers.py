"""MCP servers that others wrote, from PyPI and npm, run in a sandbox and relayed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2b.environments import Environment
from tests.e2b.server import PaddockServer
from tests.mcp.environments import JAVASCRIPT, PYTHON, prepared
from tests.mcp.world import Box, create

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def mounted(paddock: PaddockServer, environment: Environment) -> Box:
    """A sandbox that sees the environment where it is, and the Python that it was made with."""
    seen = [environment.folder, *([Path(sys.base_prefix)] if environment is PYTHON else [])]
    outside = [str(path) for path in seen if not str(path).startswith("/usr")]
    return create(paddock, mounts=[{"source": path, "target": path, "read_only": True} for path in outside])


def test_a_server_from_pypi_is_relayed(paddock: PaddockServer) -> None:
    environment = prepared(PYTHON)
    box = mounted(paddock, environment)
    box.put("time", command=str(environment.python), args=["-m", "mcp_server_time", "--local-timezone", "UTC"])
    box.wait_for("time", "ready")
    assert "mcp_time_get_current_time" in box.tools()
    assert "UTC" in box.call("mcp_time_get_current_time", timezone="UTC")["text"]
    assert box.call("mcp_time_get_current_time", timezone="Nowhere/City")["failed"]


async def test_a_server_from_npm_is_relayed_with_its_pictures(paddock: PaddockServer) -> None:
    environment = prepared(JAVASCRIPT)
    box = mounted(paddock, environment)
    script = environment.folder / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    box.put("all", command="node", args=[str(script)]).raise_for_status()
    box.wait_for("all", "ready")
    assert "mcp_all_echo" in box.tools()
    async with box.client() as client:
        result = await client.call_tool("mcp_all_echo", {"message": "hello"})
        assert "hello" in result.content[0].text  # type: ignore[union-attr]
        image = next(tool.name for tool in (await client.list_tools()).tools if "image" in tool.name.lower())
        blocks = (await client.call_tool(image, {})).content
    assert "image" in {block.type for block in blocks}
