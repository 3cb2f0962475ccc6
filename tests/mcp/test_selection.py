"""Which tools a model is shown, and what it hears when it calls one that is not there, or in the wrong way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from benchmarks.mcp_tokens import tokens
from paddock.tools.catalogue import TOOLS
from tests.mcp.world import Box

MOST_TOKENS = 8000
NOT_INSTALLED = {name for name in TOOLS if name.startswith("browser_")} | {"claude_code", "codex"}


async def listed(box: Box, query: str = "") -> dict[str, Any]:
    async with box.client(url=f"{box.mcp_url}{query}") as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_what_is_not_installed_is_not_shown_and_the_rest_costs_little(box: Box) -> None:
    shown = await listed(box)
    assert shown.keys() >= TOOLS.keys() - NOT_INSTALLED and not shown.keys() & NOT_INSTALLED
    assert tokens(list(shown.values())) <= MOST_TOKENS
    everything = await listed(box, "?tools=default,browser,agents")
    assert everything.keys() >= TOOLS.keys() and tokens(list(everything.values())) <= MOST_TOKENS
    assert tokens(list((await listed(box, "?tools=minimal")).values())) <= MOST_TOKENS / 4


async def test_what_an_argument_means_is_said_once_in_a_list_and_in_any_list(box: Box) -> None:
    for query in ("?tools=browser", "?tools=browser_hover,browser_click", "?tools=browser_drag"):
        shown = await listed(box, query)
        parts = [
            part
            for tool in shown.values()
            for part in (tool.input_schema, *tool.input_schema.get("$defs", {}).values())
        ]
        said = [
            field.get("description") for part in parts for name, field in part["properties"].items() if name == "ref"
        ]
        assert said and said[0] and not any(said[1:])


async def test_an_agent_that_is_installed_is_shown_from_then_on_also_while_the_sandbox_sleeps(
    new_box: Callable[..., Box],
) -> None:
    box = new_box()
    assert "claude_code" not in await listed(box)
    box.run("mkdir -p ~/.local/bin && echo '#!/bin/sh' > ~/.local/bin/claude && chmod +x ~/.local/bin/claude")
    assert "claude_code" in await listed(box)
    box.pause()
    shown = await listed(box)
    assert "claude_code" in shown and "codex" not in shown
    assert box.status() == "paused"


@pytest.mark.parametrize(
    ("query", "wanted", "unwanted"),
    [
        ("?tools=files,shell", {"read_file", "apply_patch", "run_command", "shell_run"}, {"git_add", "grep_files"}),
        ("?tools=minimal", {"read_file", "run_command"}, {"git_add", "shell_run"}),
        ("?tools=full", set(TOOLS), set()),
        ("?tools=browser,read_file", {"browser_click", "read_file"}, {"write_file"}),
        ("?tools=git_*,-git_push", {"git_add"}, {"git_push", "read_file"}),
        ("?tools=-git", {"read_file", "todo_read"}, {"git_add", "browser_click"}),
        ("?tools=shell_exec", {"run_command"}, {"read_file"}),
    ],
)
async def test_a_url_chooses(box: Box, query: str, wanted: set[str], unwanted: set[str]) -> None:
    shown = (await listed(box, query)).keys()
    assert wanted <= shown and not unwanted & shown


async def test_a_users_own_servers_are_shown_unless_others_are_named(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.plain("plain")
    box.wait_for("plain", "ready")
    assert "mcp_plain_echo" in await listed(box) and "mcp_plain_echo" in await listed(box, "?tools=minimal")
    assert "mcp_plain_echo" not in await listed(box, "?tools=files")
    assert set(await listed(box, "?tools=mcp")) >= {"mcp_plain_echo"}
    assert "read_file" not in await listed(box, "?tools=mcp_plain_*")
    async with box.client() as client:
        with pytest.raises(MCPError, match=r"no tool 'mcp_plain_ehco'\. The nearest: .*mcp_plain_echo"):
            await client.call_tool("mcp_plain_ehco", {})


async def test_a_word_that_means_nothing_is_answered_with_those_that_do(box: Box) -> None:
    async with box.client(url=f"{box.mcp_url}?tools=fiels") as client:
        with pytest.raises(MCPError, match="names 'fiels', which is no profile"):
            await client.list_tools()


async def test_a_tool_that_is_not_shown_is_called_all_the_same_and_says_what_to_install(box: Box) -> None:
    async with box.client(url=f"{box.mcp_url}?tools=git") as client:
        assert not (await client.call_tool("write_file", {"path": "unseen.txt", "content": "a"})).is_error
        assert "paddock addon install browser" in await said(client, "browser_navigate", url="http://localhost")
        assert "npm install -g" in await said(client, "claude_code", prompt="hello")


async def test_what_is_wrong_is_said_in_sentences_with_the_next_step(box: Box) -> None:
    async with box.client() as client:
        misnamed = await said(client, "run_command", cmmand="true")
        assert "There is no argument `cmmand`: did you mean `command`?" in misnamed
        assert "run_command takes: command (required), cwd" in misnamed
        odd = await said(client, "read_file", path="a", offset="first", limit=0)
        assert "`offset` must be a whole number, not 'first'." in odd and "`limit` must be at least 1, not 0." in odd
        assert not any(word in misnamed + odd for word in ("Extra inputs", "Field required", "validation", "Input"))
        denied = await said(client, "write_file", path="/etc/passwd", content="")
        assert denied.startswith("Permission denied: '/etc/passwd'.") and "/workspace" in denied and "sudo" in denied
        assert "set literal" in await said(client, "grep_files", pattern="main(")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_said_so(box: Box, number: str) -> None:
    """Which JSON does not have, and many writers of JSON write."""
    arguments = f'"arguments": {{"path": "a", "limit": {number}}}'
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    call = f'"method": "tools/call", "params": {{"name": "read_file", {arguments}}}'
    fronts = {
        box.mcp_url: f'{{"jsonrpc": "2.0", "id": 1, {call}}}',
        f"{box.mcp_url}?tools=full": f'{{"tool": "read_file", {arguments}}}',
        f"/{box.sandbox_id}/tools/read_file": f"{{{arguments}}}",
    }
    with box.api() as api:
        for url, body in fronts.items():
            answer = api.post(url, content=body, headers=headers)
            assert answer.status_code < 500 and "`limit` must be a finite number" in answer.text, answer.text
