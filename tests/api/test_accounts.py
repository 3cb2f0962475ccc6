"""Keys, users, quotas and what happened: the operator's side."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from fastapi import FastAPI

from paddock.accounts.accounts import Principal
from paddock.accounts.quotas import Quota
from paddock.api.auth import RateLimiter
from paddock.errors import TooManyRequests
from paddock.models import Role
from tests.api.conftest import MakeSandbox, assert_error, speaking_to
from tests.support.waiting import PATIENCE_S


async def test_a_new_key_works_until_it_is_revoked(app: FastAPI, client: httpx.AsyncClient) -> None:
    made = (await client.post("/keys", json={"name": "ci", "user_id": "bob"})).json()
    async with speaking_to(app, made["key"]) as bob:
        assert (await bob.get("/me")).json()["user_id"] == "bob"
        assert [key["name"] for key in (await bob.get("/keys")).json()["keys"]] == ["ci"]
        assert (await client.delete(f"/keys/{made['key_id']}")).json()["success"] is True
        assert_error(await bob.get("/me"), 401, "unauthorized")
    assert_error(await client.delete(f"/keys/{made['key_id']}"), 404, "key_not_found")


async def test_no_list_shows_a_key_again(client: httpx.AsyncClient, key: str) -> None:
    assert key not in (await client.get("/keys")).text


async def test_users_have_roles_and_quotas(client: httpx.AsyncClient) -> None:
    made = await client.post("/users", json={"user_id": "carol", "quota": {"max_live": 2}})
    assert (made.json()["role"], made.json()["quota"]["max_live"]) == ("member", 2)
    assert_error(await client.post("/users", json={"user_id": "carol"}), 409, "already_exists")
    changed = await client.patch("/users/carol", json={"role": "admin", "disabled": True})
    assert (changed.json()["role"], changed.json()["disabled"], changed.json()["quota"]["max_live"]) == (
        "admin",
        True,
        2,
    )
    assert (await client.get("/users/carol")).json() == changed.json()
    assert "carol" in {user["user_id"] for user in (await client.get("/users")).json()["users"]}
    assert_error(await client.get("/users/nobody"), 404, "user_not_found")


async def test_a_user_whom_a_key_made_takes_a_quota_once(client: httpx.AsyncClient) -> None:
    wishes = [("dave", {"quota": {"max_live": 1}}, ("member", 1)), ("dora", {"role": "admin"}, ("admin", 0))]
    for name, wish, expected in wishes:
        assert (await client.post("/keys", json={"name": name})).status_code == 200
        made = await client.post("/users", json={"user_id": name, **wish})
        assert (await client.get(f"/users/{name}")).json() == made.json()
        assert (made.json()["role"], made.json()["quota"]["max_live"]) == expected
        again = await client.post("/users", json={"user_id": name, "quota": {"max_live": 9}})
        assert "PATCH" in assert_error(again, 409, "already_exists")["message"]
    assert_error(
        await client.post("/users", json={"user_id": "admin", "quota": {"max_live": 1}}), 409, "already_exists"
    )


async def test_a_quota_counts_at_once_for_a_key_that_is_in_use(app: FastAPI, client: httpx.AsyncClient) -> None:
    made = (await client.post("/keys", json={"name": "erin"})).json()
    async with speaking_to(app, made["key"]) as erin:
        assert (await erin.get("/me")).json()["quota"]["max_live"] == 100
        await client.post("/users", json={"user_id": "erin", "quota": {"max_live": 1}})
        assert (await erin.post("/sandboxes/create", json={"user_id": "erin"})).status_code == 200
        assert_error(await erin.post("/sandboxes/create", json={"user_id": "erin"}), 429, "quota_exceeded")


async def test_an_email_is_refused_with_a_sentence_and_an_example(client: httpx.AsyncClient) -> None:
    refused = await client.post("/sandboxes/create", json={"user_id": "alice@example.com"})
    message = assert_error(refused, 422, "invalid_request")["message"]
    assert message == (
        "The request is not valid. user_id: may have up to 63 letters, digits, `-` and `_`, and begins and ends with a "
        "letter or digit, for example alice-example-com"
    )
    for wrong in ("@", "../" * 1000, "\ud800"):
        body = json.dumps({"name": wrong})
        error = assert_error(await client.post("/keys", content=body), 422, "invalid_request")
        assert "pattern" not in error["message"] and len(error["message"]) < 300


async def test_a_member_may_not_do_what_an_admin_may(member: httpx.AsyncClient) -> None:
    assert (await member.get("/me")).json()["role"] == "member"
    assert_error(await member.get("/users"), 403, "forbidden")
    assert_error(await member.post("/users", json={"user_id": "eve"}), 403, "forbidden")
    assert_error(await member.patch("/users/mallory", json={"role": "admin"}), 403, "forbidden")
    assert_error(await member.post("/keys", json={"name": "x", "user_id": "admin"}), 403, "forbidden")


async def test_anothers_sandbox_is_not_found(member: httpx.AsyncClient, sandbox: str) -> None:
    body = {"sandbox_id": sandbox}
    for answer in [
        await member.get(f"/sandboxes/{sandbox}"),
        await member.get(f"/sandboxes/{sandbox}/events"),
        await member.get(f"/sandboxes/{sandbox}/usage"),
        await member.get(f"/sandboxes/{sandbox}/metrics"),
        await member.get(f"/sandboxes/{sandbox}/files?path=/etc/passwd"),
        await member.get(f"/sandboxes/{sandbox}/events/stream"),
        await member.delete(f"/sandboxes/{sandbox}"),
        await member.post("/sandboxes/run-command", json={**body, "command": "id"}),
        await member.post("/sandboxes/pause", json=body),
        await member.post("/sandboxes/expose-port", json={**body, "port": 80}),
    ]:
        assert_error(answer, 404, "sandbox_not_found")
    assert (await member.get("/sandboxes")).json()["sandboxes"] == []


async def test_a_user_who_asks_too_often_is_told_when_to_come_back(
    client: httpx.AsyncClient, member: httpx.AsyncClient
) -> None:
    await client.patch("/users/mallory", json={"quota": {"requests_per_second": 1}})
    answers = [await member.get("/me") for _ in range(5)]
    limited = [answer for answer in answers if answer.status_code == 429]
    assert limited
    assert_error(limited[0], 429, "rate_limited")
    assert int(limited[0].headers["retry-after"]) >= 1


def test_the_bucket_fills_again_with_time() -> None:
    now = 0.0
    limiter = RateLimiter(lambda: now)
    who = Principal("bob", Role.MEMBER, 1, Quota(0, 0, 0, requests_per_second=2))
    for _ in range(4):
        limiter.take(who)
    with pytest.raises(TooManyRequests) as refused:
        limiter.take(who)
    assert refused.value.retry_after == pytest.approx(0.5)
    now = 0.5
    limiter.take(who)
    limiter.take(Principal("eve", Role.MEMBER, 2, Quota(0, 0, 0, requests_per_second=0)))


async def test_events_usage_and_metrics(client: httpx.AsyncClient, sandbox: str) -> None:
    await client.post("/sandboxes/run-command", json={"sandbox_id": sandbox, "command": "echo 12345; exit 3"})
    page = (await client.get(f"/sandboxes/{sandbox}/events", params={"limit": 1000})).json()
    assert [event["seq"] for event in page["events"]] == list(range(1, len(page["events"]) + 1))
    ended = next(event for event in page["events"] if event["type"] == "command.finished")
    assert (ended["data"]["command"], ended["data"]["exit_code"]) == ("echo 12345; exit 3", 3)
    rest = (await client.get(f"/sandboxes/{sandbox}/events", params={"after": page["next_after"]})).json()
    assert rest == {"events": [], "next_after": page["next_after"]}
    usage = (await client.get(f"/sandboxes/{sandbox}/usage")).json()["total"]
    assert (usage["commands"], usage["bytes_out"]) == (1, 6)
    assert usage["seconds"] > 0, "of a sandbox that is young, too"
    everybody = await client.get("/usage", params={"user_id": "alice", "since": "2020-01-01", "until": "2099-12-31"})
    assert everybody.json()["total"]["commands"] == 1
    assert everybody.json()["total"]["seconds"] > usage["seconds"]
    assert everybody.json()["rows"][-1]["seconds"] > 0
    before = await client.get("/usage", params={"user_id": "alice", "until": "2020-01-01"})
    assert (before.json()["total"]["seconds"], before.json()["rows"]) == (0, [])
    assert (await client.get(f"/sandboxes/{sandbox}/metrics")).json()["memory_total"] >= 0


async def test_looking_at_metrics_does_not_wake(client: httpx.AsyncClient, sandbox: str) -> None:
    await client.post("/sandboxes/pause", json={"sandbox_id": sandbox})
    assert_error(await client.get(f"/sandboxes/{sandbox}/metrics"), 409, "conflict")
    assert (await client.get(f"/sandboxes/{sandbox}")).json()["status"] == "paused"


async def test_the_usage_of_all_is_told_while_several_sandboxes_are_in_use(
    client: httpx.AsyncClient, new_sandbox: MakeSandbox
) -> None:
    used = [await new_sandbox() for _ in range(3)]
    for round_number in range(1, 4):
        runs = [{"sandbox_id": sandbox_id, "command": "true"} for sandbox_id in used]
        await asyncio.gather(*(client.post("/sandboxes/run-command", json=run) for run in runs))
        async with asyncio.timeout(PATIENCE_S):  # far beyond what writing a few rows takes, and not for ever
            told = await client.get("/usage", params={"user_id": "alice"})
        assert told.json()["total"]["commands"] == 3 * round_number
