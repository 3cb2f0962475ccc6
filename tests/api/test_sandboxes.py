"""Sandboxes over HTTP: made, found, put to sleep, ended."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from paddock.ids import is_sandbox_id
from paddock.server.context import ServerContext
from tests.api.conftest import MakeSandbox, assert_error


async def test_create_answers_with_a_running_sandbox_and_its_urls(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/sandboxes/create",
        json={
            "user_id": "alice",
            "timeout": 60,
            "env": {"A": "b"},
            "metadata": {"chat": {"id": 7}},
            "on_timeout": "delete",
        },
    )
    assert answer.status_code == 200
    body = answer.json()
    assert body["success"] is True
    assert body["status"] == "running"
    assert is_sandbox_id(body["sandbox_id"])
    assert body["sandbox_id"].startswith("alice_")
    assert body["mcp_url"] == f"http://6060-{body['key']}.box.test/mcp/"
    assert body["vscode_url"].startswith(f"http://9000-{body['key']}.box.test/?paddock_link=")
    assert body["timeout"] == 60
    assert body["expires_action"] == "delete"
    assert body["metadata"] == {"chat": {"id": 7}}


async def test_create_with_an_idempotency_key_makes_one(client: httpx.AsyncClient) -> None:
    answers = [
        await client.post("/sandboxes/create", json={"user_id": "alice"}, headers={"Idempotency-Key": "only once"})
        for _ in range(2)
    ]
    assert answers[0].json()["sandbox_id"] == answers[1].json()["sandbox_id"]
    other = await client.post("/sandboxes/create", json={"user_id": "bob"}, headers={"Idempotency-Key": "only once"})
    assert_error(other, 409, "idempotency_mismatch")


async def test_the_three_status_routes_say_the_same(client: httpx.AsyncClient, sandbox: str) -> None:
    answers = [
        await client.get("/sandboxes/status", params={"sandbox_id": sandbox}),
        await client.get(f"/sandboxes/{sandbox}/status"),
        await client.get(f"/sandboxes/{sandbox}"),
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["status"] for answer in answers} == {"running"}
    assert {answer.json()["sandbox_id"] for answer in answers} == {sandbox}


async def test_pause_connect_and_resume(client: httpx.AsyncClient, sandbox: str) -> None:
    paused = await client.post("/sandboxes/pause", json={"sandbox_id": sandbox})
    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    connected = await client.post("/sandboxes/connect", json={"sandbox_id": sandbox, "timeout": 90})
    assert (connected.json()["status"], connected.json()["timeout"]) == ("running", 90)
    await client.post("/sandboxes/pause", json={"sandbox_id": sandbox})
    resumed = await client.post("/sandboxes/resume", json={"sandbox_id": sandbox})
    assert (resumed.json()["status"], resumed.json()["timeout"]) == ("running", 90)


async def test_timeout_is_remembered(client: httpx.AsyncClient, sandbox: str) -> None:
    answer = await client.post("/sandboxes/timeout", json={"sandbox_id": sandbox, "timeout": 77, "action": "delete"})
    assert answer.json()["success"] is True
    seen = (await client.get(f"/sandboxes/{sandbox}")).json()
    assert (seen["timeout"], seen["on_timeout"]) == (77, "delete")


async def test_a_whole_number_may_be_written_with_a_point(client: httpx.AsyncClient, sandbox: str) -> None:
    answer = await client.post("/sandboxes/timeout", json={"sandbox_id": sandbox, "timeout": 80.0})
    assert answer.json()["timeout"] == 80


async def test_an_exposed_port_has_a_url_on_a_host_of_its_own(client: httpx.AsyncClient, sandbox: str) -> None:
    answer = await client.post("/sandboxes/expose-port", json={"sandbox_id": sandbox, "port": 3000})
    key = (await client.get(f"/sandboxes/{sandbox}")).json()["key"]
    assert answer.json()["url"].startswith(f"http://3000-{key}.box.test/?paddock_link=")
    assert answer.json()["program_url"].startswith(f"http://3000-{key}.box.test/?"), "names below it lead here"


async def test_delete_by_body_and_by_path(client: httpx.AsyncClient, new_sandbox: MakeSandbox) -> None:
    first, second = await new_sandbox(), await new_sandbox()
    assert (await client.post("/sandboxes/delete", json={"sandbox_id": first})).json()["success"] is True
    assert (await client.delete(f"/sandboxes/{second}")).json()["success"] is True
    answer = await client.post("/sandboxes/run-command", json={"sandbox_id": first, "command": "true"})
    assert_error(answer, 404, "sandbox_not_found")


async def test_the_list_is_paged_and_filtered(client: httpx.AsyncClient, new_sandbox: MakeSandbox) -> None:
    made = {await new_sandbox() for _ in range(3)}
    other = await new_sandbox(user_id="bob")
    found, cursor = set(), None
    while True:
        params = {"user_id": "alice", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/sandboxes", params=params)).json()
        found |= {sandbox["sandbox_id"] for sandbox in page["sandboxes"]}
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == made
    await client.post("/sandboxes/pause", json={"sandbox_id": other})
    paused = (await client.get("/sandboxes?status=paused")).json()["sandboxes"]
    assert [sandbox["sandbox_id"] for sandbox in paused] == [other]


async def test_a_cursor_of_nonsense_is_refused(client: httpx.AsyncClient) -> None:
    assert_error(await client.get("/sandboxes", params={"cursor": "x\x01é"}), 422)


async def test_whether_ports_are_public_and_use_wakes_is_chosen_at_create(
    client: httpx.AsyncClient, new_sandbox: MakeSandbox
) -> None:
    plain, chosen = await new_sandbox(), await new_sandbox(public_ports=True, auto_resume=False)
    for sandbox_id, public, wakes in ((plain, False, True), (chosen, True, False)):
        info = (await client.get(f"/sandboxes/{sandbox_id}")).json()
        assert (info["public_ports"], info["auto_resume"], info["timeout_from"]) == (public, wakes, "activity")
    await client.post("/sandboxes/pause", json={"sandbox_id": chosen})
    answer = await client.get(f"/sandboxes/{chosen}/files/list", params={"path": "/workspace"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "sandbox_paused")
    assert (await client.post("/sandboxes/connect", json={"sandbox_id": chosen})).json()["status"] == "running"


@pytest.mark.parametrize("place", [[1.5, "\ud800"], [float("nan"), "x"], [float("inf"), "x"], [1.5, "\0"], [[], {}]])
async def test_a_cursor_that_was_made_up_is_refused(client: httpx.AsyncClient, place: list[Any]) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(place).encode()).decode()
    assert_error(await client.get("/sandboxes", params={"cursor": cursor}), 422, "invalid_request")


async def test_resume_gives_the_whole_timeout_again_as_connect_does(client: httpx.AsyncClient, sandbox: str) -> None:
    """Of one that runs already too."""
    given = {"sandbox_id": sandbox}
    ends = [(await client.post("/sandboxes/timeout", json={**given, "timeout": 90})).json()["expires_at"]]
    for verb in ("resume", "connect", "resume"):
        await asyncio.sleep(0.01)
        ends.append((await client.post(f"/sandboxes/{verb}", json=given)).json()["expires_at"])
    assert ends == sorted(set(ends)), "each is later than the one before"


async def test_setting_the_systems_clock_changes_no_span(
    client: httpx.AsyncClient, sandbox: str, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def timed() -> tuple[datetime, float]:
        await context.scheduler.tick()
        info = (await client.get(f"/sandboxes/{sandbox}")).json()
        used = (await client.get(f"/sandboxes/{sandbox}/usage")).json()
        return datetime.fromisoformat(info["expires_at"]), used["total"]["seconds"]

    ends, seconds = await timed()
    for hours in (1, -1):
        real = time.time
        monkeypatch.setattr(time, "time", lambda real=real, hours=hours: real() + 3600 * hours)
        later, now_seconds = await timed()
        assert abs(later - ends - timedelta(hours=hours)) < timedelta(seconds=30)
        assert 0 <= now_seconds - seconds < 30
        ends, seconds = later, now_seconds
