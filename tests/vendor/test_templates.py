"""Templates at a vendor: its account has more than the one that is the default here, and the vendor is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.vendor.account import Account
from tests.vendor.front import a_front

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]


@pytest.fixture(params=["e2b", "daytona"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    account: Account = request.getfixturevalue("account" if request.param == "e2b" else "daytona_account")
    async with a_front(account, tmp_path / "home") as (_, made):
        yield made


async def test_any_template_of_the_vendors_account_can_be_named(client: httpx.AsyncClient) -> None:
    body = {"user_id": "alice", "template_id": "host", "command": "echo made"}
    made = await client.post("/sandboxes/create", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["template_id"] == "host"
    assert made.json()["command"]["stdout"] == "made\n"


async def test_one_that_the_vendor_has_not_is_refused_by_name(client: httpx.AsyncClient) -> None:
    refused = await client.post("/sandboxes/create", json={"user_id": "alice", "template_id": "no-such"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "template_not_found"), refused.text
    assert "no-such" in refused.json()["error"]["message"]
    assert (await client.get("/sandboxes")).json()["sandboxes"] == []


async def test_the_facades_ask_the_vendor_too(client: httpx.AsyncClient) -> None:
    key = {"X-API-Key": client.headers["X-API-Key"]}
    for template, status in (("host", 201), ("no-such", 404)):
        made = await client.post("/e2b/sandboxes", json={"templateID": template}, headers=key)
        assert made.status_code == status, made.text
    bearer = {"Authorization": f"Bearer {client.headers['X-API-Key']}"}
    for snapshot, status in (("host", 200), ("no-such", 404)):
        made = await client.post("/daytona/api/sandbox", json={"snapshot": snapshot}, headers=bearer)
        assert made.status_code == status, made.text
