"""What a member can have the server keep is bounded, whatever the route."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paddock.accounts.accounts import MOST_KEYS, Principal
from paddock.lifecycle import reconciler
from paddock.machine.base import FileInfo
from paddock.runtime import services
from paddock.server.context import ServerContext
from paddock.store import events, idempotency, sandboxes
from tests.api.conftest import assert_error
from tests.support.waiting import PATIENCE_S, until


async def own_sandbox(member: httpx.AsyncClient) -> str:
    made = await member.post("/sandboxes/create", json={"user_id": "mallory"})
    assert made.status_code == 200, made.text
    return str(made.json()["sandbox_id"])


async def test_services_of_a_sandbox(member: httpx.AsyncClient) -> None:
    route = f"/sandboxes/{await own_sandbox(member)}/services"
    for number in range(services.MOST_SERVICES):
        body = {"port": 1024 + number, "command": "true"}
        assert (await member.put(f"{route}/s{number}", json=body)).status_code == 200
    error = assert_error(await member.put(f"{route}/more", json={"port": 9999, "command": "true"}), 422)
    assert f"{services.MOST_SERVICES} services" in error["message"]
    changed = await member.put(f"{route}/s0", json={"port": 9999, "command": "false"})
    assert changed.status_code == 200, "one that is there can be changed"


async def test_text_of_services(member: httpx.AsyncClient) -> None:
    route = f"/sandboxes/{await own_sandbox(member)}/services"
    answers = []
    for number in range(6):
        body = {"port": 1024 + number, "command": f"true {'x' * 120_000}"}
        answers.append(await member.put(f"{route}/s{number}", json=body))
    assert [answer.status_code for answer in answers] == [200] * 4 + [422] * 2
    assert "characters" in assert_error(answers[-1], 422)["message"]
    assert len((await member.get(route)).json()["services"]) == 4


async def test_text_of_mcp_servers(member: httpx.AsyncClient) -> None:
    long = {"command": "true", "args": ["x" * 8000] * 10}
    made = await member.post("/sandboxes/create", json={"user_id": "mallory", "mcp_servers": {"long": long}})
    assert "'long'" in assert_error(made, 422)["message"]
    route = f"/sandboxes/{await own_sandbox(member)}/mcp-servers"
    assert "characters" in assert_error(await member.put(f"{route}/long", json=long), 422)["message"]
    assert (await member.put(f"{route}/short", json={**long, "args": ["x" * 8000] * 7})).status_code == 200


async def test_variables_of_mcp_servers(member: httpx.AsyncClient) -> None:
    """A request of some kilobytes would be 60 MB in the server's memory, and one of a megabyte 15 GB."""
    made = await member.post("/sandboxes/create", json={"user_id": "mallory", "env": {"LONG": "x" * 60_000}})
    route = f"/sandboxes/{made.json()['sandbox_id']}/mcp-servers"
    for definition in (
        {"command": "true", "args": ["${LONG}" * 1000]},
        {"command": "true", "env": {"A": "${LONG}" * 1000}},
        {"url": "https://mcp.example/${LONG}", "headers": {f"X-{number}": "${LONG}" for number in range(100)}},
    ):
        await member.put(f"{route}/many", json=definition)
        many = (await member.get(f"{route}/many")).json()
        assert many["status"] == "failed" and "characters" in many["reason"], many
    await member.put(f"{route}/once", json={"command": "true", "args": ["${LONG}"], "disabled": False})
    assert "characters" not in ((await member.get(f"{route}/once")).json()["reason"] or "")


async def test_keys_of_a_user(member: httpx.AsyncClient, client: httpx.AsyncClient) -> None:
    for _ in range(MOST_KEYS - 1):
        assert (await member.post("/keys", json={"name": "another"})).status_code == 200
    error = assert_error(await member.post("/keys", json={"name": "another"}), 429, "quota_exceeded")
    assert f"{MOST_KEYS} keys" in error["message"]
    await member.delete(f"/keys/{(await member.get('/keys')).json()['keys'][-1]['key_id']}")
    assert (await member.post("/keys", json={"name": "another"})).status_code == 200
    assert (await client.post("/keys", json={"name": "more", "user_id": "mallory"})).status_code == 200


async def test_events_of_a_sandbox(member: httpx.AsyncClient, context: ServerContext) -> None:
    sandbox_id = await own_sandbox(member)
    context.settings.events_kept = 20
    for number in range(30):
        await member.post("/sandboxes/write-file", json={"sandbox_id": sandbox_id, "path": f"/tmp/{number}"})
        await member.post("/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": f"echo {number}"})
    before = (await member.get(f"/sandboxes/{sandbox_id}/events", params={"limit": 100})).json()["events"]
    assert len(before) > 30
    await context.reconciler.sweep()
    after = (await member.get(f"/sandboxes/{sandbox_id}/events", params={"limit": 100})).json()["events"]
    assert after == before[-20:], "the latest are kept, under their numbers"


async def test_events_of_all_sandboxes_of_a_user(member: httpx.AsyncClient, context: ServerContext) -> None:
    """Those with few keep them; those with many share what is left, whether or not they are deleted."""
    context.settings.user_events_kept = 50
    busy, deleted, quiet = [await own_sandbox(member) for _ in range(3)]
    for sandbox_id in (busy, deleted):
        for number in range(40):
            await member.post("/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": f"echo {number}"})
    few = (await member.get(f"/sandboxes/{quiet}/events")).json()["events"]
    await member.delete(f"/sandboxes/{deleted}")
    await context.reconciler.sweep()
    await context.reconciler.sweep()
    async with context.store.read() as connection:
        left = [len(await events.after(connection, each, 0, 1000)) for each in (busy, deleted, quiet)]
    assert sum(left) <= 50 and left[0] == left[1] > 20 and left[2] == len(few), left


async def test_data_of_an_event(member: httpx.AsyncClient) -> None:
    sandbox_id = await own_sandbox(member)
    long = "\N{GRINNING FACE}" * 1000
    await member.post("/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": f": {long}"})
    rules = [f"a{number}.{'b' * 60}.example.org" for number in range(500)]
    changed = await member.put(f"/sandboxes/{sandbox_id}/egress", json={"allow": rules})
    assert changed.status_code == 200 and len(changed.json()["allow"]) == 500
    shown = (await member.get(f"/sandboxes/{sandbox_id}/events", params={"limit": 100})).json()["events"]
    told = {event["type"]: event["data"] for event in shown}
    assert all(len(json.dumps(data)) <= events.MAX_DATA + 20 for data in told.values())
    assert told["command.finished"]["truncated"] and told["command.finished"]["exit_code"] == 0
    assert told["command.finished"]["command"].startswith(f": {long[:50]}")
    assert told["egress.changed"]["truncated"] and told["egress.changed"]["allow"][0] == rules[0]


async def test_records_of_deleted_sandboxes_and_keys(
    member: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever creates and deletes all day fills no disk with it."""
    context.settings.deleted_kept = 3
    monkeypatch.setattr(reconciler, "REMEMBERED_KEYS", 4)
    made = []
    for number in range(6):
        body = {"user_id": "mallory"}
        answer = await member.post("/sandboxes/create", json=body, headers={"Idempotency-Key": f"key {number}"})
        made.append(answer.json()["sandbox_id"])
        await member.delete(f"/sandboxes/{made[-1]}")
    await context.reconciler.sweep()
    statuses = [(await member.get(f"/sandboxes/{sandbox_id}")).status_code for sandbox_id in made]
    assert statuses[:3] == [404] * 3
    async with context.store.read() as connection:
        kept = [await idempotency.find(connection, "mallory", f"key {number}") for number in range(6)]
        left = [await sandboxes.get(connection, sandbox_id) for sandbox_id in made]
    assert [one is not None for one in kept] == [False, False, True, True, True, True]
    assert [one is not None for one in left] == [False, False, False, True, True, True]


async def test_commands_that_were_counted(
    member: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_COUNTED", 4)
    sandbox_id = await own_sandbox(member)
    for number in range(8):
        body, headers = {"sandbox_id": sandbox_id, "command": "true"}, {"Idempotency-Key": f"command {number}"}
        assert (await member.post("/sandboxes/run-command", json=body, headers=headers)).status_code == 200
        await context.journal.all_settled()
    await context.reconciler.sweep()
    async with context.store.read() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM counted_commands")).scalar_one() == 4


async def test_requests_to_envd_count_as_requests(
    app: FastAPI, client: httpx.AsyncClient, member: httpx.AsyncClient, context: ServerContext
) -> None:
    sandbox_id = await own_sandbox(member)
    await client.patch("/users/mallory", json={"quota": {"requests_per_second": 1}})
    key = (await context.row_cache.get(sandbox_id)).key  # type: ignore[union-attr]
    headers = {"E2b-Sandbox-Id": key, "E2b-Sandbox-Port": "49983", "X-Access-Token": context.tokens.access(key)}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as envd:
        answers = [await envd.post("/process.Process/List", json={}) for _ in range(8)]
        assert 429 in [answer.status_code for answer in answers], [answer.text for answer in answers]
        await client.patch("/users/mallory", json={"disabled": True, "quota": {"requests_per_second": 0}})
        assert (await envd.post("/process.Process/List", json={})).status_code == 401, "who is locked out is so here"


async def test_directories_that_are_listed_at_a_time(
    member: httpx.AsyncClient, client: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much memory one takes is known at its end only: one user's wait for each other, and nobody else does."""
    sandbox_id, other = await own_sandbox(member), await client.post("/sandboxes/create", json={"user_id": "alice"})
    stuck, begun, real = asyncio.Event(), [], context.files.list_directory

    async def slow(who: Principal, *args: Any, **more: Any) -> list[FileInfo]:
        begun.append(who.user_id)
        if who.user_id == "mallory":
            await stuck.wait()
        return await real(who, *args, **more)

    monkeypatch.setattr(context.files, "list_directory", slow)
    route = "/sandboxes/{}/files/list"
    async with asyncio.timeout(PATIENCE_S):
        many = [asyncio.create_task(member.get(route.format(sandbox_id))) for _ in range(20)]
        await until(lambda: len(begun) >= 2)
        quick = await client.get(route.format(other.json()["sandbox_id"]))
        assert quick.status_code == 200 and begun.count("mallory") == 2
        many[-1].cancel()  # whoever leaves while waiting takes no turn
        stuck.set()
        assert {answer.status_code for answer in await asyncio.gather(*many[:-1])} == {200}
