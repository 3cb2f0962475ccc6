"""``python -m paddock.mcp``: the same tools on the machine that it runs on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.world import ERAS, PLAIN
from tests.support.waiting import PATIENCE_S, wait_until

COMMAND = (sys.executable, "-m", "paddock.mcp")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "plain.py").write_text(PLAIN)
    server = {"command": sys.executable, "args": ["plain.py"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"mine": server}}))
    return folder


@pytest.fixture(scope="module")
def address(workspace: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    me = os.environ.get("USER") or "root"
    running = subprocess.Popen(
        [*COMMAND, "--port", str(port), "--workspace", str(workspace)],
        env={**os.environ, "PADDOCK_MCP_TOKEN": "open sesame", "USER": me},
        stderr=subprocess.DEVNULL,
    )
    try:

        def listens() -> bool:
            assert running.poll() is None, "it did not start"
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            return False

        wait_until(listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


@pytest.mark.parametrize("era", ERAS)
async def test_it_serves_files_and_commands_of_this_machine_over_http(address: str, workspace: Path, era: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": "Bearer open sesame"}, timeout=PATIENCE_S) as http,
        Client(streamable_http_client(f"{address}/mcp/", http_client=http), mode=era) as client,
    ):
        await client.call_tool("write_file", {"path": f"{era}.txt", "content": "here"})
        ran = await client.call_tool("run_command", {"command": f"cat {era}.txt; echo $PADDOCK_MCP_TOKEN"})
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert "mcp_mine_echo" in listed and not {"browser_navigate", "run_python"} & listed  # which need a server
        echo = await client.call_tool("mcp_mine_echo", {"text": "hello"})
    assert (workspace / f"{era}.txt").read_text() == "here"
    assert ran.content[0].text.startswith("here\n[exit code 0]") and echo.content[0].text == "hello"  # type: ignore[union-attr]


def test_it_wants_its_token_on_every_route(address: str) -> None:
    for path in ("/mcp/", "/mcp", "/health"):
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = httpx.post(address + path, headers=headers, json={}, timeout=PATIENCE_S)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "unauthorized"
    healthy = httpx.get(f"{address}/health", headers={"Authorization": "Bearer open sesame"}, timeout=PATIENCE_S)
    assert healthy.json()["status"] == "ok"


async def test_it_speaks_over_standard_input_and_output(workspace: Path) -> None:
    shown = ["--tools", "read_file,env_*"]
    started = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "--stdio", "--workspace", str(workspace), *shown]
    )
    async with Client(started) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"read_file", "env_get", "env_set"}
        result = await client.call_tool("list_directory", {"path": "."})
    assert "plain.py" in result.content[0].text  # type: ignore[union-attr]


async def test_an_agent_that_it_asks_may_not_do_everything_unasked(workspace: Path, tmp_path: Path) -> None:
    """Here no sandbox is around it."""
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\nprintf \'{"type":"result","is_error":false,"result":"%s"}\' "$*"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [*COMMAND[1:], "--stdio", "--workspace", str(workspace)]
    async with Client(StdioServerParameters(command=COMMAND[0], args=words, env=env)) as client:
        result = await client.call_tool("claude_code", {"prompt": "hello"})
    assert "--permission-mode acceptEdits" in result.content[0].text  # type: ignore[union-attr]


def test_a_word_for_tools_that_means_nothing_is_said_at_the_start() -> None:
    done = subprocess.run([*COMMAND, "--tools", "fils"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and "names 'fils'" in done.stderr and "minimal" in done.stderr


def test_a_user_that_there_is_not_is_said_so() -> None:
    done = subprocess.run([*COMMAND, "--user", "nobody-here"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and "no user 'nobody-here'" in done.stderr
