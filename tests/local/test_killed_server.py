"""SIGKILL the real server with fifty sandboxes at work: the next one has them all, and no byte of output is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.accounts.first_key import first_key
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from tests.chaos.slot import Slot
from tests.local import traces
from tests.support.processor import cpu_seconds
from tests.support.waiting import until

SANDBOXES = 50
COUNT = "i=0; until [ -e /workspace/enough ]; do i=$((i+1)); echo line $i of $NAME; sleep 0.15; done; exit 7"
MAX_START_CPU_S = 10.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Slot, httpx.AsyncClient]]:
    environment = {
        "PADDOCK_HOME": str(tmp_path),
        "SANDBOX_PROVIDER": "local",
        "PADDOCK_POOL_SIZE": "0",
        "PADDOCK_SERVER_TTL": "1",
        "PADDOCK_DEFAULT_MEMORY_MB": "64",
        "PADDOCK_DEFAULT_DISK_MB": "64",
    }
    key = (await first_key(Settings(**environment, _env_file=None))).key  # type: ignore[arg-type]
    slot = Slot(environment, 0, tmp_path, None)
    await slot.start(fuse=None)
    async with httpx.AsyncClient(base_url=slot.url, headers={"X-API-Key": key}, timeout=60) as client:
        yield slot, client
    await slot.dead(within=0)
    provider = LocalProvider(tmp_path / "local")
    await provider.start()
    for found in await provider.list():
        await provider.delete(found.sandbox_id)
    await provider.close()
    await until(lambda: traces.look(tmp_path / "local") == traces.NOTHING)


async def begin(client: httpx.AsyncClient, number: int) -> tuple[str, str]:
    """One sandbox with one command that writes until it is told that it is enough."""
    made = await client.post("/sandboxes/create", json={"user_id": "worker", "env": {"NAME": f"number-{number}"}})
    assert made.status_code == 200, made.text
    sandbox_id = made.json()["sandbox_id"]
    started = await client.post(f"/sandboxes/{sandbox_id}/processes", json={"command": COUNT})
    assert started.is_success, started.text
    return sandbox_id, started.json()["process_id"]


async def end(client: httpx.AsyncClient, sandbox_id: str, process_id: str) -> dict[str, Any]:
    wrote = await client.put(f"/sandboxes/{sandbox_id}/files", params={"path": "/workspace/enough"}, content=b"")
    assert wrote.status_code == 200, wrote.text
    path = f"/sandboxes/{sandbox_id}/processes/{process_id}"
    waited = await client.post(f"{path}/wait", params={"timeout": 50})
    assert waited.status_code == 200, waited.text
    output = await client.get(f"{path}/output", params={"stdout_offset": 0})
    assert output.status_code == 200, output.text
    return {**waited.json(), **output.json()}


async def sizes(client: httpx.AsyncClient, work: list[tuple[str, str]]) -> list[int]:
    """Of what each has written so far. All must be running."""
    found = []
    for sandbox_id, process_id in work:
        info = (await client.get(f"/sandboxes/{sandbox_id}/processes/{process_id}")).json()
        assert info["status"] == "running", info
        found.append(int(info["stdout_size"]))
    return found


async def test_fifty_sandboxes_are_taken_up_again_and_their_output_is_complete(
    server: tuple[Slot, httpx.AsyncClient],
) -> None:
    slot, client = server
    await begin(client, 0)  # the layers of the template are made
    work = list(await asyncio.gather(*(begin(client, number) for number in range(1, SANDBOXES + 1))))
    before = await sizes(client, work)
    await slot.dead(within=0)
    await asyncio.sleep(1)  # in which they write some six lines, and no server is there
    await slot.start(fuse=None)
    assert slot.pid is not None
    needed = cpu_seconds(slot.pid)
    listed = (await client.get("/sandboxes", params={"limit": 200})).json()["sandboxes"]
    states = {one["sandbox_id"]: one["status"] for one in listed}
    assert all(states[sandbox_id] == "running" for sandbox_id, _ in work)
    after = await sizes(client, work)
    assert all(larger > smaller for smaller, larger in zip(before, after, strict=True))
    ended = await asyncio.gather(*(end(client, *one) for one in work))
    for number, one in enumerate(ended, 1):
        assert (one["status"], one["exit_code"]) == ("completed", 7)
        lines = one["stdout"].splitlines()
        assert lines == [f"line {i} of number-{number}" for i in range(1, len(lines) + 1)]
        assert one["stdout_size"] == len(one["stdout"]) >= after[number - 1]
    assert needed < MAX_START_CPU_S, f"the server computed for {needed:.1f} s before it was back"
