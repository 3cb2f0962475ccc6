"""What people who come from older sandbox servers type at a terminal today, line by line of the page."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from paddock.client import SyncSandboxClient
from paddock.client.answers import Sandbox
from tests.cli.conftest import Paddock
from tests.cli.terminals import screen
from tests.e2b.server import PaddockServer


@pytest.fixture
def paddock(local_server: PaddockServer, tmp_path: Path) -> Paddock:
    return Paddock(tmp_path, local_server.url, local_server.key)


def test_a_port_by_its_variable_and_a_page_there(local_server: PaddockServer) -> None:
    """The server of these tests was started with PORT in its environment."""
    page = httpx.get(f"http://127.0.0.1:{local_server.port}/docs", timeout=60)
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]


def test_a_check(paddock: Paddock) -> None:
    found = paddock.json("doctor")
    assert found["sandboxes"] and "kernel" in {each["name"] for each in found["checks"]}


@pytest.mark.parametrize("words", [("shell", "ID"), ("exec", "-it", "ID", "--", "bash")])
def test_a_shell_inside(words: tuple[str, ...], paddock: Paddock, box: Sandbox) -> None:
    with screen(paddock, *(box.sandbox_id if word == "ID" else word for word in words)) as shown:
        shown.type(b"echo in $PWD as $(whoami)\r")
        shown.wait_for(b"in /workspace as user")
        shown.type(b"exit 3\r")
        assert shown.end() == 3


def test_logs_are_followed_to_the_end(paddock: Paddock, box: Sandbox) -> None:
    paddock("exec", box.sandbox_id, "--", "mkfifo going")
    paddock("exec", "-d", box.sandbox_id, "--", "echo one; cat going")
    with screen(paddock, "logs", "-f", box.sandbox_id) as shown:
        shown.wait_for(b"one")
        paddock("exec", box.sandbox_id, "--", "echo two > going")
        shown.wait_for(b"two")
        assert shown.end() == 0
    paddock("exec", box.sandbox_id, "--", "rm going")


def test_what_is_known_of_one(paddock: Paddock, box: Sandbox) -> None:
    known = json.loads(paddock("inspect", box.sandbox_id).stdout)
    assert (known["sandbox_id"], known["status"]) == (box.sandbox_id, "running")
    assert known["egress_report"]["mode"] == "proxy" and known["isolation_report"]["layers"]
    assert paddock.json("status", box.sandbox_id)["sandbox_id"] == box.sandbox_id
    assert "running" in paddock("status", box.sandbox_id).stdout


def test_servers_of_an_mcp_json(paddock: Paddock, box: Sandbox) -> None:
    servers = {
        "playwright": {"command": "npx", "args": ["@playwright/mcp@latest"], "disabled": True},
        "context7": {"type": "http", "url": "https://mcp.context7.invalid/mcp", "disabled": True},
    }
    document = json.dumps({"mcpServers": servers})
    (paddock.home / ".mcp.json").write_text(document)
    paddock("mcp", "import", box.sandbox_id, ".mcp.json")
    listed = {each["name"]: each for each in paddock.json("mcp", "list", box.sandbox_id)["servers"]}
    assert {name: each["status"] for name, each in listed.items()} == dict.fromkeys(servers, "disabled")
    for name in servers:
        paddock("mcp", "remove", box.sandbox_id, name)
    with SyncSandboxClient(paddock.url, api_key=paddock.key) as client:
        client.write_file(box.sandbox_id, ".mcp.json", document)
        listed = {each.name: each for each in client.list_mcp_servers(box.sandbox_id)}
        assert {name: listed[name].status for name in servers} == dict.fromkeys(servers, "disabled")
        client.delete_file(box.sandbox_id, ".mcp.json")
