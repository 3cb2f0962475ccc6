"""The host's disk under an ordinary user's server: nobody can be refused a write, so whoever fills it is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2b.server import PaddockServer
from tests.e2b.test_ordinary_user import ORDINARY
from tests.local.place import as_root
from tests.local.test_full_disk import Api
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import wait_until

pytestmark = [as_root, pytest.mark.slow]  # root mounts the disk, on which a server without rights has its home

_DISK_MB, _RESERVE_MB = 500, 200
_FILL = "sleep 1000 & while dd if=/dev/zero of=/workspace/$((n += 1)) bs=1M count=2 2>/dev/null; do sleep 0.02; done"
"""At 100 MB/s, at the most."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, _DISK_MB) as disk:
        yield disk


@pytest.fixture
def api(disk: SmallDisk) -> Iterator[Api]:
    server = PaddockServer(
        disk.path / "home",
        within=ORDINARY,
        PADDOCK_POOL_SIZE="0",
        PADDOCK_POOL_MAX="0",
        PADDOCK_DEFAULT_DISK_MB="2000",
        PADDOCK_DISK_RESERVE_MB=str(_RESERVE_MB),
    )
    server.start()
    api = Api(server)
    try:
        yield api
    finally:
        disk.empty()
        for sandbox in api.http.get("/sandboxes").json()["sandboxes"]:
            assert api.delete(sandbox["sandbox_id"]).status_code == 200
        server.stop()


def killed(api: Api, sandbox_id: str) -> list[str]:
    return [event["data"]["reason"] for event in api.events(sandbox_id) if event["type"] == "processes.killed"]


def test_who_fills_the_hosts_disk_is_ended_before_it_is_full_and_nobody_else(api: Api, disk: SmallDisk) -> None:
    greedy, neighbour = api.made(), api.made()
    waiting = {"sandbox_id": neighbour, "command": "echo small > /workspace/file; sleep 1000", "background": True}
    process = api.http.post("/sandboxes/run-command", json=waiting).json()["process_id"]
    filled = api.run(greedy, _FILL)
    assert filled.json()["exit_code"] == 137, filled.text
    assert disk.free_mb > _RESERVE_MB / 8
    wait_until(lambda: killed(api, greedy) == ["host_disk_full"])
    assert api.http.get(f"/sandboxes/{neighbour}/processes/{process}").json()["status"] == "running"
    assert killed(api, neighbour) == []
    assert api.pause(neighbour).status_code == 200
    assert api.delete(neighbour).status_code == 200
    api.says(greedy, "rm /workspace/[0-9]*; echo room > /workspace/file")
    assert disk.free_mb > _RESERVE_MB


def test_what_other_programs_write_ends_nobody(api: Api, disk: SmallDisk) -> None:
    sandbox = api.made()
    waiting = {"sandbox_id": sandbox, "command": "sleep 1000", "background": True}
    process = api.http.post("/sandboxes/run-command", json=waiting).json()["process_id"]
    disk.fill(leave_mb=20)
    wait_until(lambda: api.http.get("/ready").status_code == 503)
    api.says(sandbox, "head -c 2M /dev/zero > /workspace/file")
    assert api.pause(sandbox).status_code == 200
    assert api.http.post("/sandboxes/resume", json={"sandbox_id": sandbox}).status_code == 200
    assert api.http.get(f"/sandboxes/{sandbox}/processes/{process}").json()["status"] == "running"
    assert killed(api, sandbox) == []
