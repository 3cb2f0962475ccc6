"""``paddock tool`` against a server, both in this process."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from paddock.cli.app import app
from paddock.client import SyncSandboxClient
from tests.client.server import running_server

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


class Tool:
    """``paddock tool … ID …`` for one sandbox."""

    def __init__(self, url: str, key: str, sandbox_id: str) -> None:
        self._env = {"PADDOCK_URL": url, "PADDOCK_API_KEY": key}
        self._sandbox_id = sandbox_id

    def __call__(self, verb: str, *words: str, input: str = "", code: int = 0) -> Any:
        ran = CliRunner().invoke(app, ["tool", verb, self._sandbox_id, *words], input=input, env=self._env)
        assert ran.exit_code == code, f"{ran.output} {ran.exception!r}"
        return ran


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    # What the server logs would be among what the command prints.
    with capture_logs(), running_server(tmp_path_factory.mktemp("home")) as server:
        client = SyncSandboxClient(server.url, api_key=server.key)
        sandbox_id = client.create_sandbox("alice").sandbox_id
        yield Tool(server.url, server.key, sandbox_id)
        client.delete_sandbox(sandbox_id)
        client.close()


def test_tools_are_listed_and_shown(tool: Tool) -> None:
    assert "read_file" in tool("list").stdout
    assert json.loads(tool("show", "shell_exec", "--json").stdout)["name"] == "run_command"
    assert "path (required)" in tool("show", "read_file").stdout
    assert "tool list" in tool("show", "nonsense", code=1).stderr


def test_tools_are_called_with_words_files_and_json(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\ntwo\n")
    tool("call", "write_file", "path=a.txt", f"content=@{tmp_path / 'text'}")
    assert tool("call", "read_file", "path=a.txt", "offset=2", "limit=1").stdout == "     2\ttwo\n"
    tool("call", "write_file", "path=b.txt", "content=@-", input="x=1")
    assert tool("call", "read_file", "-a", '{"path": "b.txt"}').stdout == "     1\tx=1\n"
    document = json.loads(tool("call", "run_command", "command=echo $A", 'env={"A": "b"}', "--json").stdout)
    assert (document["data"]["stdout"], document["failed"]) == ("b\n", False)


def test_a_tool_that_fails_ends_with_1(tool: Tool) -> None:
    assert "none" in tool("call", "read_file", "path=none", code=1).stderr
    assert "offset" in tool("call", "read_file", "path=x", "offset=zero", code=1).stderr
    for words in (("nonsense",), ("nonsense=1",), ("-a", "["), ("-a", "1")):
        tool("call", "read_file", *words, code=2)


def test_pictures_are_kept(tool: Tool, tmp_path: Path) -> None:
    tool("call", "run_command", f"command=echo {PIXEL} | base64 -d > p.png")
    said = tool("call", "read_file", "path=p.png", "--pictures", str(tmp_path / "kept"))
    [kept] = (tmp_path / "kept").iterdir()
    assert kept.read_bytes() == base64.b64decode(PIXEL)
    assert str(kept) in said.stderr
