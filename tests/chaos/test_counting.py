"""What was answered is counted once, wherever the server died."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.chaos.scene import Scene
from tests.chaos.slot import Slot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_every_command_that_was_answered_is_counted_once_whenever_the_server_dies(
    chaos: Scene,
) -> None:
    slots = _seeing(chaos)
    answered = 0
    async with chaos.client() as client:
        await chaos.start_all()
        made = await client.post(f"{slots[0].url}/sandboxes/create", json={"user_id": "counted"})
        sandbox_id = made.json()["sandbox_id"]
        for _ in range(8):
            for _ in range(chaos.herd.rng.randint(1, 6)):
                slot = chaos.herd.rng.choice(slots)
                run = {"sandbox_id": sandbox_id, "command": "true"}
                answer = await client.post(f"{slot.url}/sandboxes/run-command", json=run)
                assert answer.status_code == 200, answer.text
                answered += 1
            # With the last answer hardly out, wherever its record is by then.
            await asyncio.sleep(chaos.herd.rng.choice([0, 0, 0.01, 0.05, 0.06]))
            for slot in slots:
                await slot.dead(within=0)
                await slot.start(fuse=None)
        used = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/usage")).json()["total"]
        events = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/events?limit=1000")).json()["events"]
        assert (await client.delete(f"{slots[0].url}/sandboxes/{sandbox_id}")).status_code == 200
    assert used["commands"] == answered
    assert [event["type"] for event in events].count("command.finished") == answered
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_a_command_that_a_crash_cut_short_is_counted_when_it_is_asked_for_again(
    chaos: Scene,
) -> None:
    slots = _seeing(chaos)
    async with chaos.client() as client:
        await chaos.start_all()
        made = await client.post(f"{slots[0].url}/sandboxes/create", json={"user_id": "counted"})
        sandbox_id = made.json()["sandbox_id"]
        for number in range(4):
            run = {
                "sandbox_id": sandbox_id,
                "command": f"touch {number}; until [ -e go-{number} ]; do sleep 0.05; done",
            }
            keyed = {"Idempotency-Key": f"command-{number}"}
            asked = client.post(f"{slots[0].url}/sandboxes/run-command", json=run, headers=keyed)
            first = asyncio.create_task(asked)
            await _has_begun(client, slots[0], sandbox_id, f"/workspace/{number}")
            for slot in slots:
                await slot.dead(within=0)
            await asyncio.wait([first])
            assert isinstance(first.exception(), httpx.TransportError), "the server died under it"
            await chaos.start_all()
            go = {"sandbox_id": sandbox_id, "path": f"/workspace/go-{number}", "content": ""}
            assert (await client.post(f"{slots[0].url}/sandboxes/write-file", json=go)).status_code == 200
            for slot in (slots[0], slots[-1]):  # asked for twice: it still counts once
                answer = await client.post(f"{slot.url}/sandboxes/run-command", json=run, headers=keyed)
                assert answer.json()["exit_code"] == 0, answer.text
        used = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/usage")).json()["total"]
        events = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/events?limit=1000")).json()["events"]
        assert (await client.delete(f"{slots[0].url}/sandboxes/{sandbox_id}")).status_code == 200
    assert used["commands"] == 4
    assert [event["type"] for event in events].count("command.finished") == 4


def _seeing(chaos: Scene) -> list[Slot]:
    """The servers that act on what the first one made. To others it would be forwarded, once they had met."""
    return chaos.slots[:1] if chaos.own_nodes else chaos.slots


async def _has_begun(client: httpx.AsyncClient, slot: Slot, sandbox_id: str, path: str) -> None:
    async with asyncio.timeout(20):
        while True:
            asked = {"sandbox_id": sandbox_id, "path": path}
            if (await client.post(f"{slot.url}/sandboxes/read-file", json=asked)).status_code == 200:
                return
            await asyncio.sleep(0.02)
