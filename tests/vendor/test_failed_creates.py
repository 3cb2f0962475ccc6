"""A create that the client was told has failed: what the vendor made of it all the same is ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import PATIENCE_S
from tests.vendor.account import Account
from tests.vendor.front import a_front
from tests.vendor.road import Trouble, a_road_to
from tests.vendor.test_faults import CREATE

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]


async def test_a_machine_of_a_create_that_was_answered_as_failed_is_ended(account: Account, tmp_path: Path) -> None:
    async with a_road_to(account.server.url) as road:
        settings = {"E2B_API_URL": f"{road.url}/e2b", "E2B_SANDBOX_URL": road.url, "PADDOCK_RECONCILE_INTERVAL": 0.5}
        async with a_front(account, tmp_path / "home", **settings) as (_, client):
            road.troubles = [Trouble(CREATE, times=1)]  # it is made, and nobody hears of it
            failed = await client.post("/sandboxes/create", json={"user_id": "alice"})
            assert failed.status_code == 503, failed.text
            assert sum(line.startswith("POST /e2b/v2/sandboxes ") for line in road.seen) == 1
            async with asyncio.timeout(PATIENCE_S):
                while await asyncio.to_thread(_machines, account) or await _listed(client):
                    await asyncio.sleep(0.1)


async def _listed(client: httpx.AsyncClient) -> int:
    answer = await client.get("/sandboxes")
    return len(answer.json()["sandboxes"])


def _machines(account: Account) -> list[str]:
    with account.owner() as owner:
        return [one.sandbox_id for one in owner.iter_sandboxes() if one.metadata.get("paddock-sandbox")]
