"""SIGKILL the real server with fifty sandboxes at work: the next one has them all, and no byte of output is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.lifecycle.bootstrap import first_key
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from tests.chaos.slot import Slot
from tests.local import traces
from tests.local.place import eventually

SANDBOXES = 50
LINES = 80
COUNT = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i of $NAME; sleep 0.15; done; exit 7"

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
    await eventually(lambda: traces.look(tmp_path / "local") == traces.NOTHING)


async def begin(client: httpx.AsyncClient, number: int) -> tuple[str, str]:
    """One sandbox with one command that writes for a while."""
    made = await client.post("/sandboxes/create", json={"user_id": "worker", "env": {"NAME": f"number-{number}"}})
    assert made.status_code == 200, made.text
    sandbox_id = made.json()["sandbox_id"]
    started = await client.post(f"/sandboxes/{sandbox_id}/processes", json={"command": COUNT})
    assert started.is_success, started.text
    return sandbox_id, started.json()["process_id"]


async def end(client: httpx.AsyncClient, sandbox_id: str, process_id: str) -> dict[str, Any]:
    path = f"/sandboxes/{sandbox_id}/processes/{process_id}"
    waited = await client.post(f"{path}/wait", params={"timeout": 50})
    assert waited.status_code == 200, waited.text
    output = await client.get(f"{path}/output", params={"stdout_offset": 0})
    assert output.status_code == 200, output.text
    return {**waited.json(), **output.json()}


async def test_fifty_sandboxes_are_taken_up_again_and_their_output_is_complete(
    server: tuple[Slot, httpx.AsyncClient],
) -> None:
    slot, client = server
    await begin(client, 0)  # the layers of the template are made
    work = list(await asyncio.gather(*(begin(client, number) for number in range(1, SANDBOXES + 1))))
    await slot.dead(within=0)
    killed = time.monotonic()
    await slot.start(fuse=None)
    back = time.monotonic() - killed
    listed = (await client.get("/sandboxes", params={"limit": 200})).json()["sandboxes"]
    states = {one["sandbox_id"]: one["status"] for one in listed}
    assert all(states[sandbox_id] == "running" for sandbox_id, _ in work)
    for sandbox_id, process_id in work[:5]:
        info = (await client.get(f"/sandboxes/{sandbox_id}/processes/{process_id}")).json()
        assert info["status"] == "running", "the test was too slow to see it at work"
    ended = await asyncio.gather(*(end(client, *one) for one in work))
    for number, one in enumerate(ended, 1):
        assert (one["status"], one["exit_code"]) == ("completed", 7)
        assert one["stdout"] == "".join(f"line {i} of number-{number}\n" for i in range(1, LINES + 1))
    assert back < 20, f"the server needed {back:.1f} s to come back"
