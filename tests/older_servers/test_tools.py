"""Tools by the names of arguments that older tool servers had, through LangChain, MCP and one plain document."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paddock import SandboxClient, SandboxSession
from paddock.client.answers import Sandbox
from tests.e2b.server import PaddockServer
from tests.mcp.world import Box

OLD_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("write_file", {"path": "{name}/app.py", "content": "print('app')"}, "Wrote"),
    ("write_file", {"file": "{name}/app.py", "content": "print('app')"}, "Wrote"),
    ("read_file", {"path": "{name}/app.py"}, "print('app')"),
    ("list_directory", {"path": "{name}"}, "app.py"),
    ("list_directory", {"directory": "{name}"}, "app.py"),
    ("search_files", {"pattern": "*.py", "path": "{name}"}, "app.py"),
    ("search_files", {"pattern": "nothing*"}, "No file"),
    ("run_command", {"cmd": "cat {name}/app.py"}, "print('app')"),
    ("run_command", {"command": "sleep 60", "background": True}, "task"),
]


def named(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value.format(name=name) if isinstance(value, str) else value for key, value in arguments.items()}


async def test_over_mcp(local_server: PaddockServer, box: Sandbox, name: str) -> None:
    over_mcp = Box(local_server, box.sandbox_id, box.key, box.mcp_url, box.mcp_token or "")
    async with over_mcp.client() as session:
        for tool, arguments, said in OLD_CALLS:
            result = await session.call_tool(tool, named(arguments, name))
            assert said in str(result.content[0]), (tool, arguments)


async def test_as_langchain_tools(name: str) -> None:
    async with await SandboxSession.create(user_id="newcomer") as session:
        tool_map = {tool.name: tool for tool in session.get_tools()}
        await tool_map["file_write"].ainvoke({"file": "app.py", "content": "print('app')"})
        assert await session.read_file("app.py") == "print('app')"
        assert "app.py" in await tool_map["file_search"].ainvoke({"pattern": "*.py"})


@pytest.mark.parametrize("tool", ["claude_code", "browser_navigate", "browser_click"])
async def test_tools_of_add_ons_have_the_old_arguments(client: SandboxClient, box: Sandbox, tool: str) -> None:
    """What they need is not installed here; their arguments are taken before that is found out."""
    old = {"claude_code": "prompt", "browser_navigate": "url", "browser_click": "selector"}[tool]
    schema = {each.name: each.input_schema for each in await client.list_tools(box.sandbox_id)}[tool]
    assert old in schema["properties"] and set(schema.get("required", ())) <= {old}


async def plain_call(box: Sandbox, document: Any, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(headers=headers or {"Authorization": f"Bearer {box.mcp_token}"}, timeout=60) as http:
        return await http.post(box.mcp_url, json=document)


async def test_one_plain_document(client: SandboxClient, box: Sandbox, name: str) -> None:
    for tool, arguments, said in OLD_CALLS:
        answer = (await plain_call(box, {"tool": tool, "args": named(arguments, name)})).json()
        assert answer["success"] and answer["tool"] == tool and said in answer["result"], answer
    assert await client.read_file(box.sandbox_id, f"{name}/app.py") == "print('app')"
    # A file may hold what MCP itself would say.
    note = {"path": f"{name}/note", "content": '{"jsonrpc": "2.0", "tool": 1}'}
    assert (await plain_call(box, {"tool": "write_file", "args": note})).json()["success"]


async def test_a_plain_document_that_cannot_be_answered(box: Sandbox) -> None:
    failed = (await plain_call(box, {"tool": "read_file", "args": {"path": "nonesuch"}})).json()
    assert failed["success"] is False and "list_directory" in failed["result"]
    for document, status in [
        ({"tool": "nonesuch", "args": {}}, 404),
        ({"tool": "read_file", "args": {"nonesuch": 1}}, 422),
        ({"tool": "read_file", "args": ["app.py"]}, 422),
        ({"tool": 1}, 422),
    ]:
        answer = await plain_call(box, document)
        assert (answer.status_code, answer.json()["success"]) == (status, False), answer.text
    unknown = await plain_call(box, {"tool": "list_directory", "args": {}}, Authorization="Bearer nonesuch")
    assert unknown.status_code == 401
