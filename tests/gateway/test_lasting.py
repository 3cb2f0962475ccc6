"""What must hold over time: the server stops when told to, holds on to nothing, and starts services once."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from paddock.gateway import gateway
from tests.gateway.bed import PORT, Bed, Box, running
from tests.support.waiting import PATIENCE_S, until


def descriptors() -> Counter[str]:
    """What this process, in which the server runs, holds open, by kind."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (a Path would open one more)
        with suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1  # noqa: PTH115
    return found


async def test_nothing_is_held_after_the_clients_left(local_box: Box) -> None:
    async def visit() -> None:
        async with await local_box.dial() as peer:
            await peer.ask("GET /seen")
            await peer.ask("POST /seen", "Content-Length: 2", body=b"hi")
            await peer.ask("GET /seen", port=3999)
            await peer.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")

    before = descriptors()["socket"]
    for _ in range(10):
        await asyncio.gather(*(visit() for _ in range(5)))
    await until(lambda: descriptors()["socket"] <= before)


async def test_a_connection_to_a_server_that_ended_is_let_go(local_bed: Bed) -> None:
    """While the client's own stays open: a descriptor would keep the sandbox's whole network alive."""
    box = local_bed.create().serve()
    async with await box.dial() as peer:
        assert (await peer.ask("GET /seen")).status == 200
        before = descriptors()["socket"]
        box.delete()
        await until(lambda: descriptors()["socket"] < before)
        answer = json.loads((await peer.ask("GET /seen")).body)
        assert answer == {"sandboxId": box.key, "message": "The sandbox was not found", "code": 502}


async def test_a_stream_is_cut_when_its_sandbox_dies(local_bed: Bed) -> None:
    """And is not passed off as complete."""
    box = local_bed.create().serve()
    async with await box.dial() as peer:
        await peer.send(peer.head("GET /events"))
        await peer.reader.readuntil(b"data: 0\n\n\r\n")
        await asyncio.to_thread(box.delete)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await peer.reader.readuntil(b"0\r\n\r\n")


async def test_a_sandbox_has_only_so_many_connections(local_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MOST_CONNECTIONS", 2)
    box = local_bed.create().serve()
    async with await box.dial() as first, await box.dial() as second, await box.dial() as third:
        assert (await first.ask("GET /seen")).status == 200
        assert (await second.ask("GET /seen")).status == 200
        refused = await third.ask("GET /seen")
        assert refused.status == 429
        assert json.loads(refused.body)["code"] == 429
        first.writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while (await third.ask("GET /seen")).status != 200:
                await asyncio.sleep(0.05)
    box.delete()


def test_the_server_stops_with_tunnels_and_events_open(tmp_path: Path) -> None:
    """It does not give them the time that it gives to what it has begun."""

    async def hold(box: Box) -> None:
        async with await box.dial() as tunnel, await box.dial() as events, await box.dial() as idle:
            await tunnel.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")
            await events.send(events.head("GET /events"))
            await events.reader.readuntil(b"data: 0\n\n\r\n")
            await idle.ask("GET /seen")
            box.bed.server.should_exit = True
            assert [await peer.at_end() for peer in (tunnel, events, idle)]

    with running(tmp_path / "home", "local", PADDOCK_DRAIN_TIMEOUT=2 * PATIENCE_S) as bed:
        asyncio.run(hold(bed.create().serve()))


def test_a_stopping_server_finishes_the_answers_that_it_has_begun(tmp_path: Path) -> None:
    with running(tmp_path / "home", "local") as bed:
        box = bed.create().serve()
        size = 64 << 20
        with box.visitor() as visitor, visitor.stream("GET", f"/long?{size}") as answer:
            pieces = answer.iter_raw(1 << 16)
            received = len(next(pieces))
            bed.server.should_exit = True
            assert received + sum(len(piece) for piece in pieces) == size


def test_a_service_starts_with_the_first_request_which_is_served(local_bed: Bed) -> None:
    box = local_bed.create()
    with local_bed.api() as api:
        service = {"port": 4000, "command": "exec python3 -m http.server 4000 --bind 127.0.0.1"}
        answer = api.put(f"/sandboxes/{box.sandbox_id}/services/files", json=service)
        assert answer.status_code == 200, answer.text
        with box.visitor(4000) as visitor:
            assert "Directory listing" in visitor.get("/").text
        broken = {"port": 4001, "command": "exit 3"}
        api.put(f"/sandboxes/{box.sandbox_id}/services/broken", json=broken).raise_for_status()
        with box.visitor(4001) as visitor:
            refused = visitor.get("/")
    assert (refused.status_code, refused.json()["port"]) == (502, 4001)
    box.delete()


def test_whoever_waits_for_a_service_when_its_sandbox_is_deleted_is_told_that_it_is_gone(local_bed: Bed) -> None:
    box = local_bed.create()
    with local_bed.api() as api, ThreadPoolExecutor(1) as waiting:
        service = {"port": 4000, "command": "touch begun; sleep 100"}
        api.put(f"/sandboxes/{box.sandbox_id}/services/slow", json=service).raise_for_status()
        with box.visitor(4000) as visitor:
            answer = waiting.submit(visitor.get, "/")
            begun = {"sandbox_id": box.sandbox_id, "command": "until test -e /workspace/begun; do sleep 0.05; done"}
            api.post("/sandboxes/run-command", json=begun).raise_for_status()
            box.delete()
            gone = answer.result()
    assert gone.json() == {"sandboxId": box.key, "message": "The sandbox was not found", "code": 502}


def test_a_masked_host_replaces_the_one_that_the_client_named(local_bed: Bed) -> None:
    body = {"templateID": "base", "timeout": 60, "network": {"maskRequestHost": "localhost:${PORT}"}}
    made = httpx.post(f"{local_bed.url}/e2b/v2/sandboxes", headers={"X-API-Key": local_bed.key}, json=body, timeout=60)
    key = made.raise_for_status().json()["sandboxID"]
    with local_bed.api() as api:
        found = [each for each in api.get("/sandboxes").json()["sandboxes"] if each["key"] == key]
    box = Box(local_bed, found[0]["sandbox_id"], key).serve()
    with box.visitor() as visitor:
        headers = {name.lower(): value for name, value in visitor.get("/seen").json()["headers"]}
    assert headers["host"] == f"localhost:{PORT}"
    assert headers["x-forwarded-host"] == box.host()
    box.delete()
