"""Metrics and logs."""

from __future__ import annotations

import json
from array import array

from paddock.clock import iso
from paddock.lifecycle.sampling import UsageHistory
from paddock.machine.base import MachineStats
from tests.e2b_control.conftest import Control, refused


def stats(at: float, cpu_seconds: float = 0.0, cores: float = 2.0) -> MachineStats:
    return MachineStats(at, cores, cpu_seconds, 1 << 20, 1 << 29, 2 << 20, 1 << 30, 3, memory_cache=7)


class TestHistory:
    def test_cpu_is_a_share_of_what_it_may_use(self) -> None:
        history = UsageHistory()
        for at, seconds in ((100.0, 1.0), (105.0, 6.0), (110.0, 100.0), (115.0, 0.0)):
            history.add(stats(at, seconds))
        assert [sample.cpu_percent for sample in history.between(0, 200)] == [0.0, 50.0, 100.0, 0.0]

    def test_it_keeps_an_hour_in_little_memory(self) -> None:
        history = UsageHistory()
        for number in range(5000):
            history.add(stats(float(number)))
        kept = list(history.between(0, 1e9))
        assert len(kept) == 720
        assert kept[-1].at == 4999.0
        assert isinstance(history._values, array)
        assert history._values.buffer_info()[1] * history._values.itemsize < 100_000

    def test_a_range_has_both_its_ends(self) -> None:
        history = UsageHistory()
        for number in range(10):
            history.add(stats(float(number)))
        assert [sample.at for sample in history.between(3, 5)] == [3.0, 4.0, 5.0]


async def test_metrics_have_every_field_and_are_there_at_once(control: Control, now: float) -> None:
    key = await control.new()
    (metric,) = (await control.http.get(f"/sandboxes/{key}/metrics")).json()
    assert set(metric) == {
        "timestamp",
        "timestampUnix",
        "cpuCount",
        "cpuUsedPct",
        "memUsed",
        "memTotal",
        "memCache",
        "diskUsed",
        "diskTotal",
    }
    assert (metric["timestamp"], metric["timestampUnix"]) == (iso(now), int(now))
    assert (metric["cpuCount"], metric["memTotal"], metric["diskTotal"]) == (1, 512 << 20, 1024 << 20)


async def test_metrics_are_sampled_and_asked_for_by_range(control: Control, now: float) -> None:
    key = await control.new(timeout=1000)
    for _ in range(3):
        await control.world.context.usage_sampler.round()
        await control.world.pass_time(5)

    async def at(**params: int) -> list[int]:
        answer = await control.http.get(f"/sandboxes/{key}/metrics", params=params)
        assert answer.status_code == 200, answer.text
        return [metric["timestampUnix"] - int(now) for metric in answer.json()]

    assert await at() == [0, 5, 10, 15]
    assert await at(start=int(now) + 5, end=int(now) + 10) == [5, 10]
    assert await at(end=int(now) - 1) == []
    assert await at(start=int(now) - 100, end=int(now) - 50) == []
    refused(await control.http.get(f"/sandboxes/{key}/metrics?start=9&end=8"), 400, "cannot be after")
    refused(await control.http.get(f"/sandboxes/{key}/metrics?start=x"), 400, "start")
    refused(await control.http.get("/sandboxes/i0/metrics"), 404, "doesn't exist")


async def test_a_paused_sandbox_keeps_its_history_and_is_not_woken(control: Control) -> None:
    key = await control.new()
    await control.world.context.usage_sampler.round()
    await control.pause(key)
    await control.world.pass_time(60)
    await control.world.context.usage_sampler.round()
    assert len((await control.http.get(f"/sandboxes/{key}/metrics")).json()) == 1
    assert (await control.info(key))["state"] == "paused"


async def test_metrics_of_many_leave_out_what_is_not_ours(control: Control, other: Control) -> None:
    mine, also, theirs = await control.new(), await control.new(), await other.new()
    ids = ",".join((mine, also, theirs, "i0"))
    answer = await control.http.get("/sandboxes/metrics", params={"sandbox_ids": ids})
    assert set(answer.json()["sandboxes"]) == {mine, also}
    refused(await control.http.get("/sandboxes/metrics"), 400, "sandbox_ids")
    refused(await control.http.get("/sandboxes/metrics", params={"sandbox_ids": "i," * 200}), 400, "at most 100")


async def test_sampling_pushes_no_end_out(control: Control) -> None:
    seen = await control.world.create(control.who, timeout=60)
    before = await control.world.deadline(seen.sandbox.sandbox_id)
    await control.world.pass_time(30)
    await control.world.context.usage_sampler.round()
    assert await control.world.deadline(seen.sandbox.sandbox_id) == before


async def test_logs_tell_what_happened(control: Control, now: float) -> None:
    key = await control.new(timeout=100)
    await control.pass_time(10)
    await control.pause(key)
    body = (await control.http.get(f"/sandboxes/{key}/logs")).json()
    assert [entry["message"] for entry in body["logEntries"]] == [
        "sandbox.creating",
        "sandbox.running",
        "sandbox.pausing",
        "sandbox.paused",
    ]
    first = body["logEntries"][0]
    assert first == {
        "timestamp": iso(now),
        "message": "sandbox.creating",
        "level": "info",
        "fields": {"event": "sandbox.creating", "cause": "request"},
    }
    line = json.loads(body["logs"][0]["line"])
    assert (line["level"], line["logger"], line["message"]) == ("info", "paddock", "sandbox.creating")
    assert len(body["logs"]) == 4
    later = await control.http.get(f"/sandboxes/{key}/logs", params={"start": int((now + 5) * 1000), "limit": 1})
    assert [entry["message"] for entry in later.json()["logEntries"]] == ["sandbox.pausing"]


async def test_the_second_generation_of_logs_goes_both_ways(control: Control, now: float) -> None:
    key = await control.new(timeout=100)
    await control.pass_time(91)

    async def messages(**params: str | int) -> list[str]:
        answer = await control.http.get(f"/v2/sandboxes/{key}/logs", params=params)
        assert answer.status_code == 200, answer.text
        return [entry["message"] for entry in answer.json()["logs"]]

    everything = ["sandbox.creating", "sandbox.running", "sandbox.timeout_warning"]
    assert await messages() == everything
    assert await messages(direction="backward", limit=2) == everything[:0:-1]
    assert await messages(cursor=int(now * 1000), direction="backward") == everything[1::-1]
    assert await messages(level="warn") == everything[2:]
    assert await messages(search="running") == everything[1:2]
    refused(await control.http.get(f"/v2/sandboxes/{key}/logs?direction=up"), 400, "direction")
    refused(await control.http.get(f"/sandboxes/{key}/logs?limit=5000"), 400, "limit")


async def test_logs_outlive_the_sandbox(control: Control) -> None:
    key = await control.new()
    await control.http.delete(f"/sandboxes/{key}")
    body = (await control.http.get(f"/sandboxes/{key}/logs")).json()
    assert body["logEntries"][-1]["message"] == "sandbox.deleted"
