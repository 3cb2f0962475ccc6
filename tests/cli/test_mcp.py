"""``paddock mcp`` against a server, both in this process."""

from __future__ import annotations

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


class Mcp:
    """``paddock mcp … ID …`` for one sandbox."""

    def __init__(self, url: str, key: str, sandbox_id: str) -> None:
        self.env = {"PADDOCK_URL": url, "PADDOCK_API_KEY": key}
        self._sandbox_id = sandbox_id

    def __call__(self, verb: str, *words: str, code: int = 0) -> Any:
        ran = CliRunner().invoke(app, ["mcp", verb, self._sandbox_id, *words], env=self.env)
        assert ran.exit_code == code, f"{ran.output} {ran.exception!r}"
        return ran

    def listed(self) -> dict[str, Any]:
        return {each["name"]: each for each in json.loads(self("list", "--json").stdout)["servers"]}


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mcp]:
    # What the server logs would be among what the command prints.
    with capture_logs(), running_server(tmp_path_factory.mktemp("home")) as server:
        client = SyncSandboxClient(server.url, api_key=server.key)
        sandbox_id = client.create_sandbox("alice").sandbox_id
        yield Mcp(server.url, server.key, sandbox_id)
        client.delete_sandbox(sandbox_id)
        client.close()


def test_the_configuration_is_what_a_client_needs(mcp: Mcp) -> None:
    (server,) = json.loads(mcp("config").stdout)["mcpServers"].values()
    assert server["type"] == "http" and server["url"].endswith("/mcp/")
    assert server["headers"]["Authorization"].startswith("Bearer ")


def test_a_program_is_registered_with_its_arguments(mcp: Mcp) -> None:
    assert "mcp_mine_…" in mcp("add", "mine", "--env", "A=b", "--cwd", "sub", "--", "python3", "-m", "mine").stdout
    mine = mcp.listed()["mine"]
    assert (mine["command"], mine["args"], mine["cwd"]) == ("python3", ["-m", "mine"], "sub")
    mcp("remove", "mine")
    assert "mine" not in mcp.listed()


@pytest.mark.parametrize(("words", "type_"), [((), "http"), (("--type", "sse"), "sse"), (("--type", "http"), "http")])
def test_a_remote_one_is_registered_with_its_way_of_speaking(mcp: Mcp, words: tuple[str, ...], type_: str) -> None:
    mcp("add", "far", "--url", "https://far.invalid/mcp", *words, "--header", "Authorization=Bearer s")
    far = mcp.listed()["far"]
    assert (far["type"], far["headers"]) == (type_, {"Authorization": "***"})
    mcp("remove", "far")


def test_what_does_not_fit_together_is_refused_with_a_reason(mcp: Mcp) -> None:
    assert "command" in mcp("add", "none", code=1).stderr
    assert "sse" in mcp("add", "both", "--type", "sse", "--", "python3", code=1).stderr
    assert "nobody" in mcp("remove", "nobody", code=1).stderr


def test_a_document_is_imported_whole_or_not_at_all(mcp: Mcp, tmp_path: Path) -> None:
    document = tmp_path / "servers.json"
    servers = {"one": {"command": "one", "disabled": True}, "two": {"url": "https://two.invalid", "disabled": True}}
    document.write_text(json.dumps({"mcpServers": servers}))
    assert "disabled" in mcp("import", str(document)).stdout
    assert mcp.listed().keys() >= {"one", "two"}
    document.write_text(json.dumps({"mcpServers": {"three": {"command": "x"}, "four": {}}}))
    mcp("import", str(document), code=1)
    assert not mcp.listed().keys() & {"three", "four"}
    document.write_text("{")
    assert "is not JSON" in mcp("import", str(document), code=1).stderr
    for name in servers:
        mcp("remove", name)
