"""MCP on a sandbox's own loopback, with no process in it; and what a restart of the server leaves of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from paddock.machine.base import ProcessSpec
from paddock.providers.base import Provider, SandboxSpec
from paddock.providers.local import LocalProvider
from tests.e2b.server import PaddockServer, delete_all
from tests.mcp.test_port import INITIALIZE
from tests.mcp.world import Box, create

ASK = r"""
import json, os, sys, urllib.request, urllib.error
def ask(body, token=os.environ["PADDOCK_MCP_TOKEN"], url=os.environ["PADDOCK_MCP_URL"]):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json",
               "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        text = opener.open(request, timeout=60).read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code
    return json.loads(next(line[5:] for line in text.splitlines() if line.startswith("data:")))
"""
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
WRITE = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "write_file", "arguments": {"path": "inside.txt", "content": "hello"}},
}


def inside(box: Box, expression: str) -> str:
    box.write("/workspace/ask.py", f"{ASK}\nprint({expression})\n")
    return box.run("python3 /workspace/ask.py").strip()


def test_programs_in_a_sandbox_find_its_tools_on_their_own_loopback(box: Box) -> None:
    assert "paddock" in inside(box, f"ask({INITIALIZE!r})")
    assert "write_file" in inside(box, f"ask({LIST!r})")
    assert "Wrote 5 bytes" in inside(box, f"ask({WRITE!r})")
    assert box.run("cat /workspace/inside.txt; ps -e -o comm= 2>/dev/null | grep -ci mcp").startswith("hello")


def test_only_the_token_for_inside_opens_it_there(box: Box, new_box: Callable[..., Box]) -> None:
    other = new_box().run("echo -n $PADDOCK_MCP_TOKEN")
    assert inside(box, f"[ask({LIST!r}, token) for token in ({box.mcp_token!r}, {other!r}, 'x')]") == "[401, 401, 401]"


def test_what_its_creator_calls_by_the_same_name_wins(new_box: Callable[..., Box]) -> None:
    assert new_box(env={"PADDOCK_MCP_URL": "mine"}).run("echo $PADDOCK_MCP_URL").strip() == "mine"


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[PaddockServer]:
    """A server that may be killed without taking it from other tests."""
    server = PaddockServer(tmp_path / "home", PADDOCK_POOL_SIZE="0")
    server.start()
    try:
        yield server
    finally:
        delete_all(server)
        server.stop()


def test_everything_is_there_again_after_the_server_was_killed(mortal: PaddockServer) -> None:
    """The port inside, the token, and a server of the user's, which is the same process as before."""
    box = create(mortal)
    box.plain("kept")
    pid = box.call("mcp_kept_pid")["text"]
    box.pause()
    mortal.restart()
    assert "mcp_kept_pid" in box.tools() and box.status() == "paused"
    assert box.call("mcp_kept_pid")["text"] == pid
    assert "write_file" in inside(box, f"ask({LIST!r})")


class Nobody:
    """A service for inside that nobody gets to."""

    port = 6060

    def variables(self, key: str) -> Mapping[str, str]:
        return {}

    async def serve(self, sandbox_id: str, client: object) -> None:
        raise AssertionError("the user's own program has this port")


async def test_a_program_of_the_users_that_has_the_port_keeps_it(tmp_path: Path) -> None:
    before, after = LocalProvider(tmp_path / "local"), LocalProvider(tmp_path / "local")
    await before.start()
    spec = SandboxSpec("alice_0000aaaa", "ikey", "owner", "alice", (await before.templates())[0])
    try:
        await before.create(spec)
        machine = await before.attach(spec.sandbox_id)
        await machine.spawn(ProcessSpec("p_1", ["python3", "-m", "http.server", "6060", "--bind", "127.0.0.1"]))
        listens = (
            "import socket,time\nfor _ in range(600):\n try: socket.create_connection(('127.0.0.1',6060)); break\n"
        )
        waiting = [*("python3", "-c"), listens + " except OSError: time.sleep(.1)\n"]
        await machine.run(ProcessSpec("p_2", waiting), timeout=60)
        await before.close()
        assert after.answer_inside(Nobody())
        await after.start()
        connection = await (await after.attach(spec.sandbox_id)).dial(6060)
        await connection.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await connection.read()
        await connection.close()
    finally:
        await after.delete(spec.sandbox_id)
        await after.close()


def test_the_providers_that_cannot_serve_inside_say_so(tmp_path: Path) -> None:
    without = type("Without", (LocalProvider,), {"answer_inside": Provider.answer_inside})
    assert without(tmp_path).answer_inside(Nobody()) is False
