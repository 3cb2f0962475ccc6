"""Eight clients with the worst inputs that we know of, and one that asks after the server's health meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2b.server import PaddockServer, delete_all
from tests.support.processor import loop_cpu_seconds
from tests.support.stalls import assert_loop_was_free, stalls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLIENTS = 8
MAX_LOOP_SECONDS = 3.0
"""That the loop may compute for others, by the same clock, before it answers one question. Before there were limits an
answer took up to 47 s on an idle machine."""
STALL_MS = 100
"""That the loop may compute in one go, by the clock of its own thread, which no busy neighbour moves."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    home = tmp_path_factory.mktemp("hostile") / "home"
    running = PaddockServer(home, PADDOCK_LOOP_STALL_MS=str(STALL_MS), PADDOCK_POOL_SIZE="0")
    running.start()
    try:
        yield running
        delete_all(running)
    finally:
        running.stop()


class Hostile:
    def __init__(self, client: httpx.AsyncClient, sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    async def tool(self, name: str, **arguments: Any) -> httpx.Response:
        return await self.post(
            f"/sandboxes/{self._sandbox}/tools/{name}", json.dumps({"arguments": arguments}).encode()
        )

    async def post(self, path: str, body: bytes) -> httpx.Response:
        return await self._client.post(path, content=body, headers={"Content-Type": "application/json"})

    async def prepare(self) -> None:
        await self.tool("run_command", command="touch " + "a" * 250)
        await self.tool("write_file", path="same.txt", content="same\n" * 30_000)
        await self.tool("run_command", command="git init -q x && head -c 900000 /dev/zero | tr '\\0' y > x/word")

    async def attack(self) -> list[int]:
        hunks = "@@\n same\n same\n-same\n+other\n" * 8_000
        answers = [
            await self.tool("glob_files", pattern="*a*a*a*a*a*a*a*a b"),
            await self.tool("shell_run", command="head -c 1000000 /dev/zero | tr '\\0' x"),
            await self.tool("apply_patch", patch=f"*** Begin Patch\n*** Update File: same.txt\n{hunks}*** End Patch"),
            await self.tool("edit_file", path="same.txt", old_string=" same\n" * 15_000 + "x", new_string="y"),
            await self.tool("git_status", path="x"),
            await self.post("/sandboxes/create", json.dumps({f"f{n}": 1 for n in range(80_000)}).encode()),
            await self.post("/sandboxes/run-command", b'{"sandbox_id":' + b"[" * 500_000),
            await self.post(f"/sandboxes/{self._sandbox}/tools/grep_files", b'{"arguments":{"pattern":"same"}}'),
        ]
        return [answer.status_code for answer in answers]


async def test_a_server_under_hostile_inputs_answers_others(server: PaddockServer) -> None:
    headers = {"X-API-Key": server.key}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=600) as client:
        made = [(await client.post("/sandboxes/create", json={"user_id": f"u{n}"})).json() for n in range(CLIENTS)]
        hostile = [Hostile(client, each["sandbox_id"]) for each in made]
        await asyncio.gather(*(each.prepare() for each in hostile))
        attacks = [asyncio.create_task(each.attack()) for each in hostile]
        longest = await _ask_for_health(client, server.pid, attacks)
        statuses = [status for attack in attacks for status in attack.result()]
        counted = (await client.get("/health")).json()["loop_stalls"]
    assert all(status < 500 for status in statuses), statuses
    assert longest < MAX_LOOP_SECONDS
    assert_loop_was_free(server.log, STALL_MS / 1000)
    assert counted == len(stalls(server.log))


async def _ask_for_health(client: httpx.AsyncClient, pid: int, attacks: list[asyncio.Task[list[int]]]) -> float:
    """The most that the loop computed during one answer."""
    longest = 0.0
    while not all(attack.done() for attack in attacks):
        before = loop_cpu_seconds(pid)
        assert (await client.get("/health")).status_code == 200
        longest = max(longest, loop_cpu_seconds(pid) - before)
        await asyncio.sleep(0.05)
    return longest
