"""Variables that last, processes, and ports."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.gateway.bed import running
from tests.support.waiting import PATIENCE_S
from tests.tools.workbench import Workbench


async def test_a_variable_lasts_for_the_commands_of_later_tools(work: Workbench) -> None:
    await work.does("env_set", name="LASTING", value='it\'s $HOME\n"two" lines')
    expected = 'it\'s $HOME\n"two" lines'
    assert (await work.does("run_command", command='printf %s "$LASTING"'))["stdout"] == expected
    assert (await work.does("env_get", name="LASTING"))["variables"] == {"LASTING": expected}
    await work.does("env_set", name="LASTING", value=None)
    assert "env_set" in await work.fails("env_get", name="LASTING")
    assert (await work.does("run_command", command='printf %s "$LASTING"'))["stdout"] == ""


async def test_what_is_given_for_one_command_wins(work: Workbench) -> None:
    await work.does("env_set", name="WINNER", value="kept")
    await work.does("env_set", name="FROM_SANDBOX", value="changed")
    data = await work.does("run_command", command="echo $WINNER $FROM_SANDBOX", env={"WINNER": "given"})
    assert data["stdout"] == "given changed\n"
    for name in ("WINNER", "FROM_SANDBOX"):
        await work.does("env_set", name=name, value=None)
    assert (await work.does("run_command", command="echo $FROM_SANDBOX"))["stdout"] == "yes\n"


async def test_a_plain_command_has_the_environment_that_its_request_says(work: Workbench) -> None:
    await work.does("env_set", name="OF_TOOLS", value="1")
    assert await work.shell("echo [$OF_TOOLS]") == "[]\n"
    await work.does("env_set", name="OF_TOOLS", value=None)


async def test_variables_set_at_the_same_time_are_all_kept(work: Workbench) -> None:
    names = [f"TOGETHER_{number}" for number in range(6)]
    await asyncio.gather(*(work.does("env_set", name=name, value=name) for name in names))
    variables = (await work.does("env_get"))["variables"]
    assert [variables.get(name) for name in names] == names
    for name in names:
        await work.does("env_set", name=name, value=None)


async def test_a_name_that_is_none_is_refused(work: Workbench) -> None:
    for name in ("A B", "1A", "", "A;touch x", "BASH_ENV"):
        assert "cannot be set" in await work.fails("env_set", name=name, value="x")


async def test_processes_are_listed_with_their_command_lines(work: Workbench) -> None:
    task = (await work.does("run_command", command="exec -a 'odd (name) \\ x' sleep 600", background=True))["task_id"]
    async with asyncio.timeout(PATIENCE_S):
        while not (found := (await work.does("process_list", filter="odd (name)"))["processes"]):
            await asyncio.sleep(0.05)
    assert found[0]["command"] == "odd (name) \\ x 600"
    assert found[0]["memory"] > 0
    assert found[0]["uid"] not in (None, 0)
    everything = await work.does("process_list")
    assert 1 in [process["pid"] for process in everything["processes"]]
    assert not [process for process in everything["processes"] if "CLK_TCK" in process["command"]]
    await work.does("task_stop", task_id=task)


async def test_ports_are_listed_with_their_addresses(work: Workbench) -> None:
    port = 23_000 + int(work.folder[-4:], 16) % 5000
    exposed = await work.does("expose_port", port=port)
    assert not exposed["listening"]
    task = (await work.does("run_command", command=f"python3 -m http.server {port}", background=True))["task_id"]
    async with asyncio.timeout(PATIENCE_S):
        while not (await work.does("expose_port", port=port))["listening"]:
            await asyncio.sleep(0.05)
    [mine] = [each for each in (await work.does("port_list"))["ports"] if each["port"] == port]
    assert mine["address"] == "0.0.0.0"
    assert mine["process"].startswith("python")
    assert str(port) in mine["url"]
    await work.does("task_stop", task_id=task)


async def test_ports_of_paddock_itself_are_not_listed_and_those_of_code_are(work: Workbench) -> None:
    await work.does("run_python", code="import socket; listener = socket.create_server(('127.0.0.1', 3456))")
    ports = {each["port"] for each in (await work.does("port_list"))["ports"]}
    assert 3456 in ports and not {3128, 6060, 49999} & ports
    assert not [port for port in ports if port > 32767], "IPython's own"
    exposed = await work.does("expose_port", port=3456)
    assert "/p/" in exposed["program_url"] and ".localhost" not in exposed["program_url"]
    await work.does("run_python", code="listener.close()")


def test_mcp_at_another_port_is_not_listed_either(tmp_path: Path) -> None:
    with running(tmp_path, "local", MCP_PORT=7070) as bed, bed.api() as api:
        box = bed.create()
        box.run("true")
        listed = api.post(f"/sandboxes/{box.sandbox_id}/tools/port_list", json={}).raise_for_status().json()
    assert listed["data"] == {"ports": []}
