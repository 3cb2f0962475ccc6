"""Private networks are the operator's to open: who may ask for them, and what becomes of what was opened."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paddock.egress.policy import EgressPolicy
from paddock.server.context import ServerContext
from tests.api.conftest import MakeSandbox, assert_error

PRIVATE = [
    "10.0.0.0/8",
    "192.168.1.1:80",
    "100.64.0.0/10",
    "fd00::/8",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "8.0.0.0/5",
]
NEVER = ["127.0.0.1", "169.254.169.254", "localhost", "0.0.0.0/8", "240.0.0.0/4", "fe80::/10"]


async def create(client: httpx.AsyncClient, egress: Any) -> httpx.Response:
    return await client.post("/sandboxes/create", json={"user_id": "bob", "egress": egress})


async def lists(client: httpx.AsyncClient, sandbox: str) -> dict[str, Any]:
    seen = (await client.get(f"/sandboxes/{sandbox}/egress")).json()
    return {name: seen[name] for name in ("allow", "deny", "private")}


@pytest.fixture
async def own(member: httpx.AsyncClient) -> str:
    """A sandbox of the member's."""
    answer = await create(member, "proxy")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sandbox_id"])


@pytest.mark.parametrize("entry", [*PRIVATE, *NEVER])
async def test_a_member_opens_nothing_private(member: httpx.AsyncClient, own: str, entry: str) -> None:
    for answer in (
        await create(member, {"allow": ["pypi.org", entry]}),
        await member.put(f"/sandboxes/{own}/egress", json={"allow": [entry]}),
    ):
        error = assert_error(answer, 403, "forbidden")
        assert "PADDOCK_EGRESS_REACHABLE" in error["message"] and entry in error["details"]["entries"]
    assert (await member.get("/sandboxes")).json()["sandboxes"][0]["sandbox_id"] == own
    assert await lists(member, own) == {"allow": [], "deny": [], "private": []}


@pytest.mark.parametrize("private", [["10.0.0.0/8"], ["db.corp.test"], ["pypi.org"]])
async def test_the_list_of_openings_is_not_a_members(member: httpx.AsyncClient, own: str, private: list[str]) -> None:
    assert_error(await create(member, {"private": private}), 403, "forbidden")
    assert_error(await member.put(f"/sandboxes/{own}/egress", json={"private": private}), 403, "forbidden")


@pytest.mark.parametrize("entry", ["*", "0.0.0.0/0", "::/0", "*:443", "2000::/3", "example.org", "8.8.8.8", "10.test"])
async def test_everything_public_may_be_said_by_anybody(member: httpx.AsyncClient, own: str, entry: str) -> None:
    answer = await member.put(f"/sandboxes/{own}/egress", json={"allow": [entry], "deny": ["10.0.0.0/8"]})
    assert (answer.status_code, answer.json()["allow"], answer.json()["private"]) == (200, [entry], [])


async def test_an_admin_opens_by_network_and_by_name(client: httpx.AsyncClient, new_sandbox: MakeSandbox) -> None:
    by_list = await new_sandbox(egress={"allow": ["10.1.0.0/16", "pypi.org"]})
    assert (await lists(client, by_list))["private"] == ["10.1.0.0/16"]
    by_name = await new_sandbox(egress={"private": ["db.corp.test:5432", "fd00::/8"], "allow": ["pypi.org"]})
    assert (await lists(client, by_name))["private"] == ["db.corp.test:5432", "fd00::/8"]
    named_only = await new_sandbox(egress={"allow": ["db.corp.test"]})
    assert (await lists(client, named_only))["private"] == [], "a name in an allow list may belong to anybody"


@pytest.mark.parametrize("entry", NEVER)
async def test_an_admin_does_not_open_the_host_for_one_sandbox(
    client: httpx.AsyncClient, sandbox: str, entry: str
) -> None:
    for wish in ({"allow": [entry]}, {"private": [entry]}):
        assert_error(await client.put(f"/sandboxes/{sandbox}/egress", json=wish), 403, "forbidden")


@pytest.mark.parametrize("entry", ["*", "8.8.8.8", "0.0.0.0/0", "8.0.0.0/5"])
async def test_the_list_of_openings_holds_what_is_private(client: httpx.AsyncClient, sandbox: str, entry: str) -> None:
    assert_error(await client.put(f"/sandboxes/{sandbox}/egress", json={"private": [entry]}), 422, "invalid_request")


async def test_a_list_of_an_admin_takes_back_what_the_one_before_opened(
    client: httpx.AsyncClient, sandbox: str
) -> None:
    route = f"/sandboxes/{sandbox}/egress"
    await client.put(route, json={"allow": ["10.1.0.0/16"], "private": ["db.corp.test"]})
    assert (await lists(client, sandbox))["private"] == ["db.corp.test", "10.1.0.0/16"]
    await client.put(route, json={"deny": ["10.1.9.9"]})
    assert (await lists(client, sandbox))["private"] == ["db.corp.test", "10.1.0.0/16"]
    await client.put(route, json={"allow": ["pypi.org"]})
    assert (await lists(client, sandbox))["private"] == ["db.corp.test"]
    await client.put(route, json={"private": []})
    assert (await lists(client, sandbox))["private"] == []


async def test_a_member_keeps_of_an_opening_what_its_own_list_names_again(
    client: httpx.AsyncClient, member: httpx.AsyncClient, own: str
) -> None:
    route = f"/sandboxes/{own}/egress"
    opened = {"allow": ["10.0.0.0/8", "pypi.org"], "private": ["db.corp.test"]}
    await client.put(route, json=opened)
    everything = ["db.corp.test", "10.0.0.0/8"]
    assert (await member.put(route, json={"deny": ["evil.test"]})).json()["private"] == everything
    narrowed = await member.put(route, json={"allow": ["10.1.0.0/16", "pypi.org"]})
    assert narrowed.json()["private"] == ["10.1.0.0/16"]
    assert_error(await member.put(route, json={"allow": ["10.0.0.0/8"]}), 403, "forbidden")
    assert_error(await member.put(route, json={"allow": ["10.1.0.0/16"], "private": ["db.corp.test"]}), 403)
    assert (await member.put(route, json={"allow": []})).json()["private"] == []
    assert_error(await member.put(route, json={"allow": ["10.1.0.0/16"]}), 403, "forbidden")


async def test_what_a_member_had_put_into_a_list_before_opens_nothing(
    client: httpx.AsyncClient, member: httpx.AsyncClient, own: str, context: ServerContext
) -> None:
    """As an older server left it: at the provider, and in the row."""
    before = EgressPolicy.from_json({"mode": "proxy", "allow": ["10.0.0.0/8"], "deny": []})
    await context.providers["local"].set_egress(own, before)
    assert (await lists(member, own)) == {"allow": ["10.0.0.0/8"], "deny": [], "private": []}
    assert (await member.put(f"/sandboxes/{own}/egress", json={"deny": ["a.test"]})).json()["private"] == []
    assert_error(await member.put(f"/sandboxes/{own}/egress", json={"allow": ["10.0.0.0/8"]}), 403)


async def test_words_that_a_member_chooses_open_nothing(member: httpx.AsyncClient, context: ServerContext) -> None:
    forged = '{"egress": {"mode": "proxy", "allow": [], "deny": [], "private": ["10.0.0.0/8"]}}'
    body = {"user_id": "bob", "metadata": {"paddock.sandbox": forged, "private": "10.0.0.0/8"}, "env": {"private": "*"}}
    made = (await member.post("/sandboxes/create", json=body)).json()["sandbox_id"]
    assert (await lists(member, made))["private"] == []
    assert_error(
        await member.post("/sandboxes/create", json=body | {"egress": {"mode": "proxy", "opened": ["*"]}}), 422
    )


async def test_an_idempotency_key_of_an_admin_is_not_a_members(
    client: httpx.AsyncClient, member: httpx.AsyncClient, new_sandbox: MakeSandbox
) -> None:
    body = {"user_id": "bob", "egress": {"private": ["10.0.0.0/8"]}}
    headers = {"Idempotency-Key": "shared"}
    made = await client.post("/sandboxes/create", json=body, headers=headers)
    assert made.status_code == 200
    assert_error(await member.post("/sandboxes/create", json=body, headers=headers), 403, "forbidden")
    await client.delete(f"/sandboxes/{made.json()['sandbox_id']}")


async def test_what_the_settings_open_is_open_to_the_lists_of_members(
    member: httpx.AsyncClient, own: str, context: ServerContext
) -> None:
    context.settings.egress_reachable = ("10.1.0.0/16", ".corp.test")
    route = f"/sandboxes/{own}/egress"
    answer = await member.put(route, json={"allow": ["10.1.2.0/24:80", "db.corp.test"]})
    assert (answer.status_code, answer.json()["private"]) == (200, [])
    assert_error(await member.put(route, json={"allow": ["10.0.0.0/8"]}), 403, "forbidden")


class TestOtherWords:
    """E2B's and Daytona's clients, with keys of the same people."""

    @pytest.mark.parametrize(
        "network", [{"allowOut": ["10.0.0.0/8"]}, {"allowOut": ["10.1.2.3", "example.org"], "denyOut": ["0.0.0.0/0"]}]
    )
    async def test_e2b(self, client: httpx.AsyncClient, member: httpx.AsyncClient, network: dict[str, Any]) -> None:
        body = {"templateID": "base", "network": network}
        refused = await member.post("/e2b/v2/sandboxes", json=body)
        assert refused.status_code == 403 and "PADDOCK_EGRESS_REACHABLE" in refused.json()["message"], refused.text
        own = (await member.post("/e2b/v2/sandboxes", json={"templateID": "base"})).json()["sandboxID"]
        change = f"/e2b/sandboxes/{own}/network"
        assert (await member.put(change, json=network)).status_code == 403
        everything = {"allowOut": ["0.0.0.0/0"], "denyOut": ["10.0.0.0/8"]}
        assert (await member.put(change, json=everything)).status_code == 204
        made = await client.post("/e2b/v2/sandboxes", json=body)
        assert made.status_code == 201, made.text
        sandbox = (await client.get("/sandboxes")).json()["sandboxes"][0]["sandbox_id"]
        assert (await lists(client, sandbox))["private"][0].startswith("10.")
        assert (await client.put(f"/e2b/sandboxes/{made.json()['sandboxID']}/network", json={})).status_code == 204
        assert (await lists(client, sandbox))["private"] == []

    async def test_daytona(self, client: httpx.AsyncClient, member: httpx.AsyncClient) -> None:
        body = {"networkAllowList": "10.1.0.0/16,8.8.8.8/32"}
        bearer = {"Authorization": f"Bearer {member.headers['X-API-Key']}"}
        admin = {"Authorization": f"Bearer {client.headers['X-API-Key']}"}
        refused = await member.post("/daytona/api/sandbox", json=body, headers=bearer)
        assert refused.status_code == 403, refused.text
        own = (await member.post("/daytona/api/sandbox", json={}, headers=bearer)).json()["id"]
        change = f"/daytona/api/sandbox/{own}/network-settings"
        assert (await member.post(change, json=body, headers=bearer)).status_code == 403
        blocked = await member.post(change, json={"networkBlockAll": True}, headers=bearer)
        assert blocked.status_code == 200, blocked.text
        made = await client.post("/daytona/api/sandbox", json=body, headers=admin)
        assert made.status_code == 200, made.text
        listed = (await client.get("/sandboxes")).json()["sandboxes"][0]["sandbox_id"]
        assert (await lists(client, listed))["private"] == ["10.1.0.0/16"]
