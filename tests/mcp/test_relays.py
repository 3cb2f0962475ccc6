"""The user's own servers in a sandbox: their tools, their trouble, and what it costs the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from tests.e2b.server import PaddockServer
from tests.mcp.world import ERAS, PLAIN, Box, create
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def home(paddock: PaddockServer) -> Box:
    """A sandbox with servers of all kinds: old, new, babbling."""
    box = create(paddock, env={"NAME": "alice"})
    box.plain("old", env={"GREETING": "hello ${NAME}"})
    box.plain("new", "modern")
    box.plain("noisy", "babble")
    return box


@pytest.mark.parametrize("name", ["old", "new", "noisy"])
def test_a_servers_tools_are_among_the_sandboxs(home: Box, name: str) -> None:
    home.wait_for(name, "ready")
    assert f"mcp_{name}_echo" in home.tools()
    answer = home.call(f"mcp_{name}_echo", text="hello")
    assert (answer["text"], answer["failed"]) == ("hello", False)


@pytest.mark.parametrize("era", ERAS)
async def test_they_are_called_over_mcp_like_any_other(home: Box, era: str) -> None:
    async with home.client(era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        echo = listed["mcp_old_echo"]
        assert echo.description == "Says it again." and echo.input_schema["required"] == ["text"]
        assert echo.annotations is not None and echo.annotations.read_only_hint
        result = await client.call_tool("mcp_old_echo", {"text": "över MCP"})
        failed = await client.call_tool("mcp_old_fail", {})
    assert result.content[0].text == "över MCP" and not result.is_error  # type: ignore[union-attr]
    assert failed.is_error and failed.content[0].text == "that did not work"  # type: ignore[union-attr]


def test_a_server_has_its_variables_and_runs_as_the_user_of_the_sandbox(home: Box) -> None:
    assert home.call("mcp_old_variable", name="GREETING")["text"] == "hello alice"
    pid = home.call("mcp_old_pid")["text"]
    assert home.run(f"ps -o user= -p {pid} || stat -c %U /proc/{pid}").strip() == "user"


def test_a_server_that_dies_says_why_and_is_back_for_the_next_call(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.plain("mortal")
    first = box.call("mcp_mortal_pid")["text"]
    died = box.call("mcp_mortal_die")
    assert died["failed"] and "mortal" in died["text"]
    box.wait_for("mortal", "ready")
    answer = box.call("mcp_mortal_pid")
    assert not answer["failed"] and answer["text"] != first


def test_a_program_that_its_user_installed_is_found(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.write("/workspace/plain.py", PLAIN)
    box.write("/home/user/.local/bin/installed-server", "#!/bin/sh\nexec python3 /workspace/plain.py\n")
    box.run("chmod +x ~/.local/bin/installed-server")
    box.put("installed", command="installed-server").raise_for_status()
    assert box.wait_for("installed", "ready")


def test_one_that_cannot_start_says_why_and_troubles_nobody(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.put("missing", command="no-such-program").raise_for_status()
    if shutil.which("uvx", path="/usr/local/bin:/usr/bin:/bin") is None:
        box.put("time", command="uvx", args=["mcp-server-time"]).raise_for_status()
        assert "pip install uv" in box.wait_for("time", "failed")["reason"]
    box.put("crashing", command="sh", args=["-c", "echo out of cheese >&2; exit 1"]).raise_for_status()
    box.put("nameless", url="https://example.org/${NOWHERE}").raise_for_status()
    box.plain("well")
    assert "no-such-program" in box.wait_for("missing", "failed")["reason"]
    assert "out of cheese" in box.wait_for("crashing", "failed")["reason"]
    assert "NOWHERE" in box.server_named("nameless")["reason"]
    assert {name.split("_")[1] for name in box.tools() if name.startswith("mcp_")} == {"well"}
    gone = box.api().post(f"/{box.sandbox_id}/tools/mcp_missing_x", json={})
    assert gone.status_code == 404 and "nearest: mcp_well_" in gone.json()["error"]["message"]


@pytest.mark.slow
def test_one_that_hangs_has_no_tools_and_holds_nobody_up_for_long(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.plain("stuck", "hang")
    box.plain("well")
    names = box.tools()
    assert "mcp_well_echo" in names and not any(name.startswith("mcp_stuck") for name in names)
    assert box.server_named("stuck")["status"] == "starting"
    assert box.call("mcp_well_echo", text="still here")["text"] == "still here"


def test_the_file_in_the_workspace_is_followed_as_it_changes(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.write("/workspace/plain.py", PLAIN)
    server = {"command": "python3", "args": ["plain.py"]}
    box.write("/workspace/.mcp.json", json.dumps({"mcpServers": {"mine": server}}))
    assert "mcp_mine_echo" in box.tools()
    assert box.server_named("mine")["source"] == "file"
    box.write(
        "/workspace/.mcp.json", json.dumps({"mcpServers": {"yours": server, "off": {**server, "disabled": True}}})
    )
    names = box.tools()
    assert (
        "mcp_yours_echo" in names and "mcp_mine_echo" not in names and box.server_named("off")["status"] == "disabled"
    )
    box.write("/workspace/.mcp.json", "{")
    with box.api() as api:
        assert "mcp.json" in api.get(f"/{box.sandbox_id}/mcp-servers").json()["problem"]
    box.run("rm /workspace/.mcp.json")
    assert not [name for name in box.tools() if name.startswith("mcp_")]


def test_servers_given_at_create_are_there_and_can_be_changed_and_removed(new_box: Callable[..., Box]) -> None:
    box = new_box(
        mcp_servers={"one": {"command": "python3", "args": ["/workspace/plain.py"], "env": {"KEY": "hidden"}}}
    )
    box.write("/workspace/plain.py", PLAIN)
    with box.api() as api:
        at = f"/{box.sandbox_id}/mcp-servers"
        shown = api.get(at).raise_for_status()
        assert [each["name"] for each in shown.json()["servers"]] == ["one"] and "hidden" not in shown.text
        wait_until(lambda: "mcp_one_pid" in box.tools())
        pid = box.call("mcp_one_pid")["text"]
        document = {"mcpServers": {"two": {"command": "python3", "args": ["/workspace/plain.py"]}}}
        assert len(api.put(at, json=document).raise_for_status().json()["servers"]) == 2
        api.delete(f"{at}/one").raise_for_status()
        assert api.get(f"{at}/one").status_code == 404
        wait_until(lambda: box.run(f"test -d /proc/{pid} || echo gone").strip())
        assert "mcp_two_echo" in box.tools() and "mcp_one_pid" not in box.tools()
        api.delete(at).raise_for_status()
        assert api.get(at).json()["servers"] == []


def test_tools_are_remembered_while_the_sandbox_sleeps_and_a_call_wakes_it(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.plain("kept")
    pid = box.call("mcp_kept_pid")["text"]
    box.pause()
    assert "mcp_kept_echo" in box.tools() and box.status() == "paused"
    assert box.call("mcp_kept_pid")["text"] == pid
    assert box.status() == "running"


def test_tools_without_end_are_cut_where_the_server_would_have_to_keep_them(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.plain("many", "many")
    shown = box.wait_for("many", "ready")
    assert "mcp_many_echo" in shown["tools"] and 40 <= len(shown["tools"]) < 80
    assert not any("nnnn" in name for name in shown["tools"])
    assert box.call("mcp_many_echo", text="still")["text"] == "still"
    box.pause()
    assert box.server_named("many")["tools"] == shown["tools"], "what is stored is what is shown"
