"""Ends, pauses and resumptions: E2B's timeouts are moments, not idle time."""

from __future__ import annotations

import asyncio

import pytest

from paddock.clock import iso
from paddock.errors import Asleep, SandboxNotFound
from paddock.models import State
from paddock.providers.faults import FaultKind
from tests.e2b_control.conftest import Control, refused

MISSING = "i" + "0" * 20


async def test_use_does_not_push_the_end_out(control: Control, now: float) -> None:
    key = await control.new(timeout=100)
    sandbox_id = await control.sandbox_id(key)
    await control.pass_time(50)
    async with control.world.context.controller.use_key(key, wake=True) as use:
        await use.record(commands=1)
    await control.world.context.journal.settled(sandbox_id)
    assert (await control.info(key))["endAt"] == iso(now + 100)


async def test_the_end_comes_though_somebody_is_inside(control: Control) -> None:
    key = await control.new(timeout=100)
    async with control.world.context.controller.use_key(key, wake=True):
        await control.pass_time(101)
        refused(await control.http.get(f"/sandboxes/{key}"), 404, "doesn't exist or you don't have access to it")


async def test_without_auto_pause_the_end_kills(control: Control) -> None:
    key = await control.new(timeout=10)
    await control.pass_time(11)
    refused(
        await control.http.get(f"/sandboxes/{key}"),
        404,
        f"Sandbox \"{key}\" doesn't exist or you don't have access to it",
    )
    refused(await control.connect(key), 404, "doesn't exist")
    refused(await control.http.delete(f"/sandboxes/{key}"), 404, "doesn't exist")


async def test_auto_pause_lasts_through_resumptions(control: Control) -> None:
    key = await control.new(timeout=10, autoPause=True)
    for _ in range(2):
        await control.pass_time(11)
        info = await control.info(key)
        assert (info["state"], info["pauseMode"]) == ("paused", "full")
        assert info["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
        answer = await control.connect(key, timeout=10)
        assert answer.status_code == 201
        assert (await control.info(key))["state"] == "running"


async def test_connecting_only_puts_the_end_off(control: Control, now: float) -> None:
    key = await control.new(timeout=200)
    before = (await control.info(key))["endAt"]
    for timeout in (0, 10, 200):
        answer = await control.connect(key, timeout=timeout)
        assert answer.status_code == 200
        assert (await control.info(key))["endAt"] == before
    assert (await control.connect(key, timeout=500)).status_code == 200
    assert (await control.info(key))["endAt"] == iso(now + 500)


async def test_connecting_to_a_paused_one_resumes_it_with_the_new_end_and_the_old_tokens(
    control: Control, now: float
) -> None:
    made = (await control.create(timeout=1000)).json()
    key = made["sandboxID"]
    await control.pause(key)
    await control.pass_time(5)
    answer = await control.connect(key, timeout=20)
    assert answer.status_code == 201
    assert answer.json() == made
    info = await control.info(key)
    assert (info["startedAt"], info["endAt"]) == (iso(now + 5), iso(now + 25))


async def test_of_two_that_connect_at_once_one_resumes(control: Control, now: float) -> None:
    key = await control.new(timeout=50)
    await control.pause(key)
    answers = await asyncio.gather(control.connect(key, timeout=700), control.connect(key, timeout=700))
    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert (await control.info(key))["endAt"] == iso(now + 700)


async def test_connect_has_a_default_and_v1_wants_to_be_told(control: Control, now: float) -> None:
    key = await control.new(timeout=10)
    assert (await control.http.post(f"/v2/sandboxes/{key}/connect")).status_code == 200
    assert (await control.info(key))["endAt"] == iso(now + 300)
    refused(await control.http.post(f"/sandboxes/{key}/connect", json={}), 400, "timeout")
    answer = await control.http.post(f"/sandboxes/{key}/connect", json={"timeout": 400})
    assert answer.status_code == 200
    refused(await control.connect(key, timeout=86_401), 400, "Timeout cannot be greater than 24 hours")
    refused(await control.connect(key, timeout=-1), 400, "Timeout")
    refused(await control.connect(MISSING), 404, "doesn't exist")


async def test_connecting_while_it_is_being_paused_waits_and_resumes(control: Control) -> None:
    key = await control.new()
    control.world.faults.add("pause", FaultKind.SLOW, seconds=0.3)
    pausing = asyncio.create_task(control.pause(key))
    sandbox_id = await control.sandbox_id(key)
    while await control.world.state(sandbox_id) is not State.PAUSING:
        await asyncio.sleep(0.01)
    assert (await control.info(key))["state"] == "paused"
    assert (await control.connect(key)).status_code == 201
    assert (await pausing).status_code == 204


async def test_one_that_is_being_killed_is_in_conflict_with_connecting_and_else_gone(control: Control) -> None:
    key = await control.new()
    sandbox_id = await control.sandbox_id(key)
    control.world.faults.add("delete", FaultKind.SLOW, seconds=0.5)
    killing = asyncio.create_task(control.http.delete(f"/sandboxes/{key}"))
    while await control.world.state(sandbox_id) is not State.DELETING:
        await asyncio.sleep(0.01)
    refused(await control.connect(key), 409, f'Sandbox "{key}" is being killed')
    refused(await control.http.get(f"/sandboxes/{key}"), 404, "doesn't exist")
    refused(await control.pause(key), 404, "doesn't exist")
    assert (await killing).status_code == 204


async def test_killing_ends_running_and_paused_ones_once(control: Control) -> None:
    running, paused = await control.new(), await control.new()
    await control.pause(paused)
    for key in (running, paused):
        answer = await control.http.delete(f"/sandboxes/{key}")
        assert (answer.status_code, answer.content, answer.headers["content-length"]) == (204, b"", "0")
        assert (await control.http.get("/v2/sandboxes")).text.find(key) == -1
        refused(await control.http.delete(f"/sandboxes/{key}"), 404, "doesn't exist")
    assert await control.world.machines() == {}


async def test_killing_while_it_is_being_paused_ends_it(control: Control) -> None:
    key = await control.new()
    control.world.faults.add("pause", FaultKind.SLOW, seconds=0.2)
    paused, killed = await asyncio.gather(control.pause(key), control.http.delete(f"/sandboxes/{key}"))
    assert killed.status_code == 204
    assert paused.status_code in (204, 404)
    assert await control.world.machines() == {}


async def test_pausing_twice_is_a_conflict(control: Control) -> None:
    key = await control.new()
    first = await control.http.post(f"/sandboxes/{key}/pause")
    assert (first.status_code, first.headers["content-length"]) == (204, "0")
    refused(await control.pause(key), 409, f"Error pausing sandbox - sandbox '{key}' is already paused")
    refused(await control.pause(MISSING), 404, "doesn't exist")


async def test_of_two_that_pause_at_once_one_does(control: Control) -> None:
    key = await control.new()
    answers = await asyncio.gather(control.pause(key), control.pause(key))
    assert sorted(answer.status_code for answer in answers) == [204, 409]


async def test_the_end_of_a_paused_one_is_when_it_was_paused(control: Control, now: float) -> None:
    key = await control.new(timeout=600)
    await control.pass_time(30)
    await control.pause(key)
    await control.pass_time(30)
    assert (await control.info(key))["endAt"] == iso(now + 30)


async def test_a_timeout_counts_from_now_and_may_shorten(control: Control, now: float) -> None:
    key = await control.new(timeout=500)
    await control.pass_time(10)
    answer = await control.http.post(f"/sandboxes/{key}/timeout", json={"timeout": 20})
    assert (answer.status_code, answer.headers["content-length"]) == (204, "0")
    assert (await control.info(key))["endAt"] == iso(now + 30)
    await control.pass_time(21)
    refused(await control.http.get(f"/sandboxes/{key}"), 404, "doesn't exist")


@pytest.mark.parametrize("seconds", [0, -7])
async def test_a_timeout_of_nothing_strikes_at_once(control: Control, seconds: int) -> None:
    pausing, dying = await control.new(autoPause=True), await control.new()
    for key in (pausing, dying):
        assert (await control.http.post(f"/sandboxes/{key}/timeout", json={"timeout": seconds})).status_code == 204
    assert (await control.info(pausing))["state"] == "paused"
    refused(await control.http.get(f"/sandboxes/{dying}"), 404, "doesn't exist")


async def test_timeouts_are_for_what_runs(control: Control) -> None:
    key = await control.new()
    for body, message in (({"timeout": 86_401}, "Timeout cannot be greater"), ({}, "timeout"), ({"timeout": 1.5}, "")):
        refused(await control.http.post(f"/sandboxes/{key}/timeout", json=body), 400, message)
    await control.pause(key)
    refused(await control.http.post(f"/sandboxes/{key}/timeout", json={"timeout": 5}), 404, "doesn't exist")
    refused(await control.http.post(f"/sandboxes/{MISSING}/timeout", json={"timeout": 5}), 404, "doesn't exist")


async def test_a_long_end_is_left_alone_by_the_reconciler(control: Control, now: float) -> None:
    key = await control.new(timeout=10)
    await control.http.post(f"/sandboxes/{key}/timeout", json={"timeout": 5000})
    await control.world.context.reconciler.sweep()
    assert (await control.info(key))["endAt"] == iso(now + 5000)


async def test_refreshes_put_the_end_off_and_never_forward(control: Control, now: float) -> None:
    key = await control.new(timeout=100)
    assert (await control.http.post(f"/sandboxes/{key}/refreshes", json={"duration": 40})).status_code == 204
    assert (await control.info(key))["endAt"] == iso(now + 100)
    assert (await control.http.post(f"/sandboxes/{key}/refreshes", json={"duration": 400})).status_code == 204
    assert (await control.info(key))["endAt"] == iso(now + 400)
    assert (await control.http.post(f"/sandboxes/{key}/refreshes")).status_code == 204
    refused(await control.http.post(f"/sandboxes/{MISSING}/refreshes"), 404, "doesn't exist")


async def test_the_old_resume_is_for_paused_ones(control: Control, now: float) -> None:
    key = await control.new(timeout=100)
    refused(await control.http.post(f"/sandboxes/{key}/resume", json={}), 409, f"Sandbox {key} is already running")
    await control.pause(key)
    answer = await control.http.post(f"/sandboxes/{key}/resume", json={"timeout": 50, "autoPause": True})
    assert answer.status_code == 201
    info = await control.info(key)
    assert (info["endAt"], info["lifecycle"]["onTimeout"]) == (iso(now + 50), "pause")
    refused(await control.http.post(f"/sandboxes/{MISSING}/resume", json={}), 404, "doesn't exist")


async def test_traffic_wakes_it_only_where_that_was_asked_for(control: Control, now: float) -> None:
    controller = control.world.context.controller
    eager, lazy = await control.new(timeout=20, autoResume={"enabled": True}), await control.new()
    for key in (eager, lazy):
        await control.pause(key)
    async with controller.use_key(eager, wake=True) as use:
        assert use.sandbox.state is State.RUNNING
    assert (await control.info(eager))["endAt"] == iso(now + 300)  # at least five minutes, whatever was asked for
    with pytest.raises(Asleep):
        async with controller.use_key(lazy, wake=True):
            pass
    assert (await control.info(lazy))["state"] == "paused"


async def test_looking_through_a_port_without_waking_finds_it_asleep(control: Control) -> None:
    key = await control.new(autoResume={"enabled": True})
    await control.pause(key)
    with pytest.raises(Asleep):
        async with control.world.context.controller.use_key(key, wake=False):
            pass


async def test_one_that_kept_only_its_files_is_not_woken_by_traffic(control: Control) -> None:
    key = await control.new(autoResume={"enabled": True})
    assert (await control.pause(key, memory=False)).status_code == 204
    assert (await control.info(key))["pauseMode"] == "filesystem"
    with pytest.raises(Asleep):
        async with control.world.context.controller.use_key(key, wake=True):
            pass
    assert (await control.connect(key)).status_code == 201


async def test_an_automatic_pause_keeps_only_the_files_where_that_was_asked_for(control: Control) -> None:
    key = await control.new(timeout=10, autoPause=True, autoPauseMemory=False)
    await control.pass_time(11)
    assert (await control.info(key))["pauseMode"] == "filesystem"


async def test_a_cold_connect_drops_the_memory(control: Control) -> None:
    key = await control.new()
    await control.pause(key)
    assert (await control.connect(key, memory=False)).status_code == 201
    row = await control.world.row(await control.sandbox_id(key))
    assert (row.state, row.memory_kept) == (State.RUNNING, False)


async def test_the_way_a_pause_was_meant_survives_a_crash(control: Control) -> None:
    key = await control.new()
    sandbox_id = await control.sandbox_id(key)
    control.world.faults.add("pause", FaultKind.FAIL)
    refused(await control.pause(key, memory=False), 503, "")
    context = await control.world.restart()
    await context.reconciler.finish(patient=False)
    row = await control.world.row(sandbox_id)
    assert (row.state, row.memory_kept) == (State.PAUSED, False)


async def test_keys_find_their_sandbox_and_nothing_else(control: Control) -> None:
    controller = control.world.context.controller
    key = await control.new()
    assert (await controller.by_key(key)).key == key
    assert (await controller.by_key(key)).sandbox_id == await control.sandbox_id(key)
    for wrong in (MISSING, "", "i%", "I" + key[1:], "x" * 70, "i\0"):
        with pytest.raises(SandboxNotFound):
            await controller.by_key(wrong)
    await control.http.delete(f"/sandboxes/{key}")
    with pytest.raises(SandboxNotFound):
        async with controller.use_key(key, wake=True):
            pass


async def test_ids_with_a_client_id_behind_them_are_understood(control: Control) -> None:
    key = await control.new()
    assert (await control.http.get(f"/sandboxes/{key}-6532622b")).json()["sandboxID"] == key
    for wrong in ("I" + key[1:], "alice_1f2e3d4c", "%00"):
        refused(await control.http.get(f"/sandboxes/{wrong}"), 400, "Invalid sandbox ID")


async def test_the_sandboxes_of_others_do_not_exist(control: Control, other: Control, admin: Control) -> None:
    key = await control.new()
    for path, method in (
        (f"/sandboxes/{key}", "GET"),
        (f"/sandboxes/{key}", "DELETE"),
        (f"/sandboxes/{key}/pause", "POST"),
        (f"/v2/sandboxes/{key}/connect", "POST"),
        (f"/sandboxes/{key}/metrics", "GET"),
        (f"/sandboxes/{key}/logs", "GET"),
        (f"/sandboxes/{key}/snapshots", "POST"),
    ):
        refused(await other.http.request(method, path), 404, "doesn't exist or you don't have access to it")
    assert (await admin.http.get(f"/sandboxes/{key}")).status_code == 200
