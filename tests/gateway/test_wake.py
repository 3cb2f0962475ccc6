"""Traffic wakes what may be woken, keeps awake what is used, and lets sleep what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from paddock.gateway import traffic_lease
from paddock.lifecycle import activity
from tests.gateway.bed import Bed, Box
from tests.support.waiting import until


@pytest.fixture
def fresh_box(bed: Bed) -> Iterator[Box]:
    box = bed.create().serve()
    yield box
    box.delete()


def pause(box: Box) -> None:
    with box.bed.api() as api:
        api.post("/sandboxes/pause", json={"sandbox_id": box.sandbox_id}).raise_for_status()


def status(box: Box) -> str:
    with box.bed.api() as api:
        return str(api.get(f"/sandboxes/{box.sandbox_id}").json()["status"])


def test_the_first_request_wakes_a_paused_sandbox_and_is_served(fresh_box: Box) -> None:
    pause(fresh_box)
    with fresh_box.visitor() as visitor:
        assert visitor.get("/seen").json()["target"] == "/seen"
    assert status(fresh_box) == "running"


def test_a_stranger_wakes_nobody(fresh_box: Box) -> None:
    pause(fresh_box)
    with fresh_box.visitor(key=None) as visitor:
        assert visitor.get("/seen").status_code == 403
    assert status(fresh_box) == "paused"


def test_a_sandbox_that_does_not_wake_by_traffic_is_not_found(bed: Bed) -> None:
    box = bed.create(auto_resume=False)
    pause(box)
    with box.visitor() as visitor:
        answer = visitor.get("/seen")
    assert answer.status_code == 502
    assert answer.json() == {"sandboxId": box.key, "message": "The sandbox was not found", "code": 502}
    assert status(box) == "paused"
    box.delete()


async def test_a_kept_connection_finds_its_sandbox_awake_again(fresh_box: Box) -> None:
    async with await fresh_box.dial() as peer:
        assert (await peer.ask("GET /seen")).status == 200
        pause(fresh_box)
        assert json.loads((await peer.ask("GET /seen?again")).body)["target"] == "/seen?again"


async def test_a_silent_tunnel_lets_the_sandbox_sleep_and_wakes_it_when_it_speaks(
    fresh_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_lease, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(activity, "_INTERVAL", 0.1)
    inside = fresh_box.bed.context.activity.inside
    async with await fresh_box.dial() as peer:
        await peer.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")
        assert inside(fresh_box.sandbox_id) is not None
        await until(lambda: inside(fresh_box.sandbox_id) is None)
        pause(fresh_box)
        await peer.send(b"wake up")
        assert await peer.reader.readexactly(7) == b"wake up"
    assert status(fresh_box) == "running"


def test_what_went_through_is_counted(fresh_box: Box) -> None:
    with fresh_box.bed.api() as api:
        before = api.get(f"/sandboxes/{fresh_box.sandbox_id}/usage").json()["total"]
        with fresh_box.visitor() as visitor:
            visitor.post("/seen", content=bytes(50_000))
            visitor.get("/long?70000")
        after = before
        while after["bytes_out"] < before["bytes_out"] + 70_000:
            after = api.get(f"/sandboxes/{fresh_box.sandbox_id}/usage").json()["total"]
    assert after["bytes_in"] >= before["bytes_in"] + 50_000
