"""What a paused sandbox holds counts against its owner's quota, whichever API paused it and whichever asks for more."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.conftest import assert_error

RESOURCES = {"memory_mb": 256, "pids": 64, "disk_mb": 256}
HELD = {
    "memory": ({"max_memory_mb": 400}, "MB of memory"),
    "processes": ({"max_processes": 100}, "processes"),
    "disk": ({"max_disk_mb": 400}, "MB of disk"),
}
"""Quotas that are enough for one of them, not for two."""


async def create(member: httpx.AsyncClient) -> httpx.Response:
    return await member.post("/sandboxes/create", json={"user_id": "mallory", "resources": RESOURCES})


async def created(member: httpx.AsyncClient) -> dict[str, Any]:
    made: dict[str, Any] = (await create(member)).raise_for_status().json()
    return made


async def pause(member: httpx.AsyncClient, sandbox: dict[str, Any], by: str) -> None:
    """By the native API, by E2B's with the memory or without, or by Daytona's."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "paddock": ("/sandboxes/pause", {"sandbox_id": sandbox["sandbox_id"]}),
        "e2b": (f"/e2b/sandboxes/{sandbox['key']}/pause", {}),
        "e2b files alone": (f"/e2b/sandboxes/{sandbox['key']}/pause", {"memory": False}),
        "daytona": (f"/daytona/api/sandbox/{sandbox['key']}/pause", {}),
        "daytona stop": (f"/daytona/api/sandbox/{sandbox['key']}/stop", {}),
    }
    path, body = calls[by]
    (await member.post(path, json=body)).raise_for_status()
    found = await member.get(f"/sandboxes/{sandbox['sandbox_id']}")
    assert found.json()["status"] == "paused"


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("by", ["paddock", "e2b", "daytona"])
async def test_what_was_frozen_still_holds_its_place(
    client: httpx.AsyncClient, member: httpx.AsyncClient, held: str, by: str
) -> None:
    quota, name = HELD[held]
    await client.patch("/users/mallory", json={"quota": quota})
    first = await created(member)
    await pause(member, first, by)
    error = assert_error(await create(member), 429, "quota_exceeded")
    assert error["details"]["quota"] == name
    # Its own share is not counted twice, and is free when it is deleted.
    (await member.post("/sandboxes/resume", json={"sandbox_id": first["sandbox_id"]})).raise_for_status()
    await pause(member, first, by)
    await member.delete(f"/sandboxes/{first['sandbox_id']}")
    await created(member)


@pytest.mark.parametrize("held", ["memory", "processes"])
@pytest.mark.parametrize("by", ["e2b files alone", "daytona stop"])
async def test_what_kept_its_files_alone_gives_its_place_up_and_has_to_ask_for_it_again(
    client: httpx.AsyncClient, member: httpx.AsyncClient, held: str, by: str
) -> None:
    quota, name = HELD[held]
    await client.patch("/users/mallory", json={"quota": quota})
    first = await created(member)
    await pause(member, first, by)
    second = await created(member)
    wake = {"sandbox_id": first["sandbox_id"]}
    error = assert_error(await member.post("/sandboxes/resume", json=wake), 429, "quota_exceeded")
    assert error["details"]["quota"] == name
    facades = (
        await member.post(f"/e2b/sandboxes/{first['key']}/connect", json={"timeout": 60}),
        await member.post(f"/daytona/api/sandbox/{first['key']}/start"),
    )
    assert [answer.status_code for answer in facades] == [429, 429]
    await pause(member, second, by)
    (await member.post("/sandboxes/resume", json=wake)).raise_for_status()


@pytest.mark.parametrize("by", ["e2b files alone", "daytona stop"])
async def test_what_kept_its_files_holds_their_disk(
    client: httpx.AsyncClient, member: httpx.AsyncClient, by: str
) -> None:
    quota, name = HELD["disk"]
    await client.patch("/users/mallory", json={"quota": quota})
    await pause(member, await created(member), by)
    assert assert_error(await create(member), 429, "quota_exceeded")["details"]["quota"] == name


@pytest.mark.parametrize("path", ["/e2b/sandboxes", "/daytona/api/sandbox"])
@pytest.mark.parametrize("quota", [{"max_memory_mb": 600}, {"max_processes": 560}, {"max_disk_mb": 1200}])
async def test_another_api_does_not_forget_what_is_paused(
    client: httpx.AsyncClient, member: httpx.AsyncClient, path: str, quota: dict[str, int]
) -> None:
    """The quota is enough for one that is made so, and not for another beside it."""
    body = {"templateID": "base"} if path.startswith("/e2b") else {}
    await client.patch("/users/mallory", json={"quota": quota})
    alone = (await member.post(path, json=body)).raise_for_status().json()
    key = alone.get("sandboxID") or alone["id"]
    (await member.delete(f"{path}/{key}")).raise_for_status()
    await pause(member, await created(member), "paddock")
    assert (await member.post(path, json=body)).status_code == 429
