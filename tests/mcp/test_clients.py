"""Clients that others wrote, unmodified, against a real server; between them they call every tool there is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paddock.tools import catalogue
from tests.e2b.server import PaddockServer
from tests.mcp.calls import every
from tests.mcp.environments import JAVASCRIPT, PYTHON, prepared
from tests.mcp.world import Box, create

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "clients"
SECONDS = 400


@pytest.fixture(scope="module")
def sandbox(paddock: PaddockServer) -> Box:
    box = create(paddock)
    box.plain("plain")
    box.wait_for("plain", "ready")
    return box


def run(command: list[str | Path], **options: Any) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def old(sandbox: Box) -> Any:
    given = {
        "url": sandbox.mcp_url,
        "token": sandbox.mcp_token,
        "calls": [call[:2] for call in every(list(catalogue.TOOLS))],
    }
    return run([prepared(PYTHON).python, CLIENTS / "old.py"], input=json.dumps(given))


def test_the_sdk_before_2_lists_and_calls_every_tool(old: Any) -> None:
    assert old["sdk"]["version"] == "2025-11-25"
    assert {*catalogue.TOOLS, "mcp_plain_echo"} <= set(old["sdk"]["listed"])
    results = old["sdk"]["results"]
    assert results.keys() == catalogue.TOOLS.keys() and all(each["text"] for each in results.values())
    expected = {name: fails for name, _, fails in every(list(catalogue.TOOLS)) if fails is not None}
    assert {name: results[name]["failed"] for name in expected} == expected, results


def test_langchains_adapters_load_and_use_the_tools(old: Any) -> None:
    assert {*catalogue.TOOLS, "mcp_plain_echo"} <= set(old["langchain"]["listed"])
    assert "by an adapter" in old["langchain"]["read"]


def test_the_javascript_sdk_lists_and_calls_tools(sandbox: Box, tmp_path: Path) -> None:
    script = prepared(JAVASCRIPT).folder / "client.mjs"
    script.write_text((CLIENTS / "client.mjs").read_text())
    found = run(["node", script, sandbox.mcp_url, sandbox.mcp_token])
    assert {*catalogue.TOOLS, "mcp_plain_echo"} <= set(found["listed"])
    assert found["ran"]["structuredContent"]["stdout"] == "from 42\n"
    assert found["failed"]["isError"] and "/nowhere" in found["failed"]["content"][0]["text"]
    assert found["relayed"]["content"][0]["text"] == "relayed"


def test_the_inspector_lists_the_tools(sandbox: Box) -> None:
    listed = run(
        [
            prepared(JAVASCRIPT).program("mcp-inspector"),
            *("--cli", sandbox.mcp_url),
            *("--transport", "http", "--method", "tools/list"),
            *("--header", f"Authorization: Bearer {sandbox.mcp_token}"),
        ]
    )
    assert {*catalogue.TOOLS} <= {tool["name"] for tool in listed["tools"]}
