"""Stopping, starting, and what happens by itself when its time has come."""

from __future__ import annotations

from paddock.lifecycle.creation import NEVER
from paddock.models import CreateSandbox, State
from tests.daytona_control.conftest import Daytona, refused

MINUTE = 60


async def test_a_stopped_sandbox_starts_with_its_files(daytona: Daytona) -> None:
    made = await daytona.new()
    await daytona.run(made["id"], "echo kept > file")
    assert (await daytona.act(made["id"], "stop")).json()["state"] == "stopped"
    assert (await daytona.act(made["id"], "start")).json()["state"] == "started"
    assert (await daytona.run(made["id"], "cat file"))["result"] == "kept\n"


async def test_a_stopped_sandbox_is_not_woken_by_a_command(daytona: Daytona) -> None:
    made = await daytona.new()
    await daytona.act(made["id"], "stop")
    answer = await daytona.http.post(f"/toolbox/{made['id']}/process/execute", json={"command": "true"})
    refused(answer, 400, "not started")
    assert await daytona.state(made["id"]) == "stopped"


async def test_a_paused_sandbox_wakes_for_a_command(daytona: Daytona) -> None:
    made = await daytona.new()
    assert (await daytona.act(made["id"], "pause")).json()["state"] == "paused"
    await daytona.run(made["id"], "true")
    assert await daytona.state(made["id"]) == "started"


async def test_stopping_a_paused_sandbox_lets_its_memory_go(daytona: Daytona) -> None:
    made = await daytona.new()
    await daytona.act(made["id"], "pause")
    assert (await daytona.act(made["id"], "stop")).json()["state"] == "stopped"


async def test_stopping_and_starting_twice_is_no_failure(daytona: Daytona) -> None:
    made = await daytona.new()
    for what, state in (("start", "started"), ("stop", "stopped"), ("stop", "stopped"), ("start", "started")):
        answer = await daytona.act(made["id"], what)
        assert (answer.status_code, answer.json()["state"]) == (200, state)


async def test_only_a_stopped_sandbox_is_archived_and_starting_takes_it_back(daytona: Daytona) -> None:
    made = await daytona.new()
    refused(await daytona.act(made["id"], "archive"), 400, "not stopped")
    await daytona.act(made["id"], "stop")
    assert (await daytona.act(made["id"], "archive")).json()["state"] == "archived"
    assert (await daytona.act(made["id"], "start")).json()["state"] == "started"
    await daytona.act(made["id"], "stop")
    assert await daytona.state(made["id"]) == "stopped"


async def test_it_is_called_archived_after_its_auto_archive_interval(daytona: Daytona) -> None:
    made = await daytona.new(autoArchiveInterval=10)
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(9 * MINUTE)
    assert await daytona.state(made["id"]) == "stopped"
    await daytona.pass_time(2 * MINUTE)
    assert await daytona.state(made["id"]) == "archived"


async def test_it_stops_after_its_auto_stop_interval(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=5)
    await daytona.pass_time(4 * MINUTE)
    assert await daytona.state(made["id"]) == "started"
    await daytona.pass_time(2 * MINUTE)
    assert await daytona.state(made["id"]) == "stopped"


async def test_activity_pushes_the_auto_stop_out(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=5)
    for _ in range(3):
        await daytona.pass_time(4 * MINUTE)
        await daytona.run(made["id"], "true")
    await daytona.pass_time(4 * MINUTE)
    answer = await daytona.act(made["id"], "last-activity")
    assert (answer.status_code, answer.content) == (201, b"")
    await daytona.pass_time(4 * MINUTE)
    assert await daytona.state(made["id"]) == "started"


async def test_an_auto_stop_interval_of_0_is_never(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=0)
    await daytona.pass_time(365 * 86_400)
    assert await daytona.state(made["id"]) == "started"
    assert (await daytona.info(made["id"]))["autoStopInterval"] == 0


async def test_an_auto_pause_interval_keeps_the_memory(daytona: Daytona) -> None:
    made = await daytona.new(autoPauseInterval=5)
    assert (made["autoStopInterval"], made["autoPauseInterval"]) == (0, 5)
    await daytona.pass_time(6 * MINUTE)
    assert await daytona.state(made["id"]) == "paused"


async def test_it_is_deleted_after_it_was_stopped_for_its_auto_delete_interval(daytona: Daytona) -> None:
    made = await daytona.new(autoDeleteInterval=30)
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(29 * MINUTE)
    assert await daytona.state(made["id"]) == "stopped"
    await daytona.pass_time(2 * MINUTE)
    assert await daytona.state(made["id"]) == "gone"


async def test_a_start_in_between_begins_the_auto_delete_interval_anew(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=0, autoDeleteInterval=30)
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(20 * MINUTE)
    await daytona.act(made["id"], "start")
    await daytona.pass_time(60 * MINUTE)
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(20 * MINUTE)
    assert await daytona.state(made["id"]) == "stopped"


async def test_without_auto_delete_a_stopped_sandbox_is_kept_beyond_the_servers_retention(daytona: Daytona) -> None:
    made = await daytona.new()
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(daytona.world.settings.paused_retention + 86_400)
    assert await daytona.state(made["id"]) == "archived"


async def test_an_ephemeral_sandbox_is_gone_when_it_stops(daytona: Daytona) -> None:
    asked = await daytona.new(autoDeleteInterval=0)
    assert (await daytona.act(asked["id"], "stop")).json()["state"] == "destroyed"
    assert await daytona.state(asked["id"]) == "gone"
    idle = await daytona.new(autoDeleteInterval=0, autoStopInterval=5)
    await daytona.pass_time(6 * MINUTE)
    assert await daytona.state(idle["id"]) == "gone"


async def test_a_time_to_live_ends_it_whatever_it_does(daytona: Daytona) -> None:
    running = await daytona.new(ttlMinutes=30, autoStopInterval=0)
    stopped = await daytona.new(ttlMinutes=30)
    assert running["autoDestroyAt"]
    await daytona.act(stopped["id"], "stop")
    await daytona.pass_time(29 * MINUTE)
    assert await daytona.state(running["id"]) == "started"
    await daytona.pass_time(2 * MINUTE)
    assert await daytona.state(running["id"]) == await daytona.state(stopped["id"]) == "gone"


async def test_a_time_to_live_can_be_set_and_taken_back(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=0)
    assert "autoDestroyAt" in (await daytona.act(made["id"], "ttl/10")).json()
    assert "autoDestroyAt" not in (await daytona.act(made["id"], "ttl/0")).json()
    await daytona.pass_time(20 * MINUTE)
    assert await daytona.state(made["id"]) == "started"


async def test_intervals_that_are_set_later_count_from_the_last_use(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=60)
    await daytona.pass_time(3 * MINUTE)
    assert (await daytona.act(made["id"], "autostop/5")).json()["autoStopInterval"] == 5
    await daytona.pass_time(1 * MINUTE)
    assert await daytona.state(made["id"]) == "started"
    await daytona.pass_time(2 * MINUTE)
    assert await daytona.state(made["id"]) == "stopped"


async def test_auto_delete_that_is_set_on_a_stopped_sandbox_counts_from_its_stop(daytona: Daytona) -> None:
    made = await daytona.new()
    await daytona.act(made["id"], "stop")
    await daytona.pass_time(10 * MINUTE)
    assert (await daytona.act(made["id"], "autodelete/15")).json()["autoDeleteInterval"] == 15
    await daytona.pass_time(6 * MINUTE)
    assert await daytona.state(made["id"]) == "gone"


async def test_auto_stop_and_auto_pause_exclude_each_other(daytona: Daytona) -> None:
    made = await daytona.new(autoStopInterval=5)
    refused(await daytona.act(made["id"], "autopause/5"), 400, "exclude each other")
    await daytona.act(made["id"], "autostop/0")
    assert (await daytona.act(made["id"], "autopause/5")).json()["autoPauseInterval"] == 5


async def test_intervals_outlive_a_crash_of_the_server(daytona: Daytona) -> None:
    made = await daytona.new(name="lasting", autoStopInterval=5, autoDeleteInterval=10, ttlMinutes=600)
    sandbox_id = (await daytona.world.context.controller.by_key(made["id"])).sandbox_id
    await daytona.world.crash()
    await daytona.world.start()
    await daytona.pass_time(6 * MINUTE)
    row = await daytona.world.row(sandbox_id)
    assert (row.state, row.memory_kept, row.name) == (State.PAUSED, False, "lasting")
    await daytona.pass_time(11 * MINUTE)
    assert (await daytona.world.row(sandbox_id)).state is State.DELETED


async def test_a_sandbox_whose_row_was_lost_is_adopted_with_its_name_and_intervals(daytona: Daytona) -> None:
    made = await daytona.new(name="found", autoDeleteInterval=10, autoStopInterval=0)
    sandbox_id = (await daytona.world.context.controller.by_key(made["id"])).sandbox_id
    async with daytona.world.context.store.write() as connection:
        await connection.exec_driver_sql("DELETE FROM sandboxes")
        await connection.exec_driver_sql("DELETE FROM deadlines")
    await daytona.world.context.reconciler.sweep()
    row = await daytona.world.row(sandbox_id)
    assert (row.name, row.retention, row.timeout) == ("found", 10 * MINUTE, NEVER)


async def test_labels_are_replaced_as_a_whole(daytona: Daytona) -> None:
    made = await daytona.new(labels={"a": "1", "b": "2"})
    answer = await daytona.http.put(f"/api/sandbox/{made['id']}/labels", json={"labels": {"c": "3"}})
    assert answer.json() == {"labels": {"c": "3"}}
    assert (await daytona.info(made["id"]))["labels"] == {"c": "3"}


async def test_a_sandbox_can_be_made_public_and_private_again(daytona: Daytona) -> None:
    made = await daytona.new()
    assert (await daytona.act(made["id"], "public/true")).json()["public"] is True
    assert (await daytona.act(made["id"], "public/false")).json()["public"] is False


async def test_a_deleted_sandbox_is_not_found_any_more(daytona: Daytona) -> None:
    made = await daytona.new(name="short")
    assert (await daytona.http.delete("/api/sandbox/short")).json()["state"] == "destroyed"
    refused(await daytona.http.get(f"/api/sandbox/{made['id']}"), 404, "not found")
    refused(await daytona.http.delete("/api/sandbox/short"), 404, "not found")


async def test_another_users_sandbox_is_not_there(daytona: Daytona, other: Daytona) -> None:
    made = await daytona.new(name="private")
    for path in (f"/api/sandbox/{made['id']}", "/api/sandbox/private", f"/toolbox/{made['id']}/work-dir"):
        refused(await other.http.get(path), 404, "not found")
    refused(await other.act(made["id"], "stop"), 404, "not found")
    assert await daytona.state("private") == "started"


async def test_only_what_failed_can_be_recovered(daytona: Daytona) -> None:
    made = await daytona.new()
    refused(await daytona.act(made["id"], "recover"), 400, "not in an error state")


async def test_a_sandbox_of_the_native_api_is_seen_with_its_own_timeout(daytona: Daytona) -> None:
    seen = await daytona.world.context.controller.create(daytona.who, CreateSandbox(user_id="erin", timeout=600))
    shown = await daytona.info(seen.sandbox.key)
    assert (shown["autoPauseInterval"], shown["autoStopInterval"]) == (10, 0)
    assert (await daytona.act(seen.sandbox.key, "public/true")).json()["public"] is True
    assert (await daytona.world.row(seen.sandbox.sandbox_id)).timeout == 600
