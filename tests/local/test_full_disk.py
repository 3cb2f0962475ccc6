"""A host whose disk is full: no sandbox is damaged by it, space can be freed, and all is well again when there is some.

Through a whole server whose home is a small file system of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2b.server import PaddockServer
from tests.local.place import as_root
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import wait_until

pytestmark = [as_root, pytest.mark.slow]

_DISK_MB = 360


TAKE_ALL = """n=0; while [ $n -lt 30 ]; do
  n=$((n + 1)); dd if=/dev/zero of=/workspace/all$n bs=1M 2>&1; sync -f /workspace
  [ $(stat -c %s /workspace/all$n) -gt 1000000 ] || break
done"""
"""Everything that a program can get by asking again and again."""


class Api:
    """The native API as a client sees it."""

    def __init__(self, server: PaddockServer) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=60)

    def create(self, **fields: Any) -> httpx.Response:
        return self.http.post("/sandboxes/create", json={"user_id": "alice", **fields})

    def made(self, **fields: Any) -> str:
        answer = self.create(**fields)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["sandbox_id"])

    def run(self, sandbox_id: str, command: str) -> httpx.Response:
        return self.http.post("/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": command})

    def says(self, sandbox_id: str, command: str) -> str:
        answer = self.run(sandbox_id, command)
        assert answer.status_code == 200, answer.text
        assert answer.json()["exit_code"] == 0, answer.text
        return str(answer.json()["stdout"])

    def write(self, sandbox_id: str, path: str, content: str) -> httpx.Response:
        body = {"sandbox_id": sandbox_id, "path": path, "content": content}
        return self.http.post("/sandboxes/write-file", json=body)

    def delete(self, sandbox_id: str) -> httpx.Response:
        return self.http.delete(f"/sandboxes/{sandbox_id}")

    def pause(self, sandbox_id: str) -> httpx.Response:
        return self.http.post("/sandboxes/pause", json={"sandbox_id": sandbox_id})

    def events(self, sandbox_id: str) -> list[dict[str, Any]]:
        answer = self.http.get(f"/sandboxes/{sandbox_id}/events")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["events"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, _DISK_MB) as disk:
        yield disk


@pytest.fixture
def api(disk: SmallDisk) -> Iterator[Api]:
    server = PaddockServer(
        disk.path / "home", PADDOCK_POOL_SIZE="1", PADDOCK_POOL_MAX="1", PADDOCK_DEFAULT_DISK_MB="330"
    )
    server.start()
    api = Api(server)
    try:
        yield api
    finally:
        disk.empty()
        for sandbox in api.http.get("/sandboxes").json()["sandboxes"]:
            api.delete(sandbox["sandbox_id"])
        server.stop()


def test_a_sandbox_that_fills_the_host_gets_enospc_and_its_neighbour_writes_on(api: Api, disk: SmallDisk) -> None:
    greedy, neighbour = api.made(), api.made()
    api.says(neighbour, "echo before > /workspace/kept && sync -f /workspace")
    filled = api.run(greedy, TAKE_ALL)
    assert "No space left on device" in filled.json()["stdout"], filled.text
    assert disk.free_mb > 5, "sandboxes must stop before the host's disk is full"
    writes = (api.write(greedy, f"/workspace/more{number}", "x" * 20_000_000) for number in range(50))
    refused = next(answer for answer in writes if answer.status_code != 200)
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "disk_full"), refused.text
    api.says(neighbour, "echo after > /workspace/more && sync -f /workspace && cat /workspace/kept")
    assert "errors" not in api.says(neighbour, "cat /proc/mounts | grep -c emergency_ro || true")


def test_several_at_once_fill_it_while_no_server_runs_and_none_is_damaged(api: Api, disk: SmallDisk) -> None:
    greedy, neighbour = [api.made() for _ in range(3)], api.made()
    for sandbox_id in greedy:
        body = {"sandbox_id": sandbox_id, "command": f"sleep 3; {TAKE_ALL}; touch /tmp/done", "background": True}
        assert api.http.post("/sandboxes/run-command", json=body).status_code == 200
    api.server.kill()
    before = disk.free_mb
    wait_until(lambda: disk.free_mb < before - 40)  # no server is there to be asked
    api.server.start()
    for sandbox_id in greedy:
        wait_until(lambda: api.run(sandbox_id, "test -e /tmp/done").json()["exit_code"] == 0)  # noqa: B023
    assert disk.free_mb > 5
    for sandbox_id in (*greedy, neighbour):
        api.says(sandbox_id, "rm -f /workspace/all*; echo text > /workspace/file && sync -f /workspace")
        assert "disk.failed" not in [event["type"] for event in api.events(sandbox_id)]


def test_creates_are_refused_with_507_below_the_watermark_until_there_is_room(api: Api, disk: SmallDisk) -> None:
    sandbox = api.made()
    disk.fill(leave_mb=10)
    wait_until(lambda: api.http.get("/ready").status_code == 503)
    refused = api.create()
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "host_disk_full"), refused.text
    assert "free" in refused.json()["error"]["message"]
    health = api.http.get("/health").json()
    assert (health["disk"], health["database"]) == ("low", "ok")
    disk.empty()
    wait_until(lambda: api.http.get("/ready").status_code == 200)
    assert api.http.get("/health").json()["disk"] == "ok"
    api.says(api.made(), "dd if=/dev/zero of=/workspace/some bs=1M count=12 && sync -f /workspace")
    api.says(sandbox, "dd if=/dev/zero of=/workspace/some bs=1M count=12 && sync -f /workspace")


def test_a_disk_that_others_filled_to_the_last_byte_lets_everything_be_paused_and_deleted(
    api: Api, disk: SmallDisk
) -> None:
    first, second, third = api.made(), api.made(), api.made()
    api.says(first, "dd if=/dev/zero of=/workspace/some bs=1M count=12 && sync -f /workspace")
    disk.fill()
    paused = api.pause(second)
    assert paused.status_code == 200, paused.text
    for sandbox_id in (first, third, second):
        gone = api.delete(sandbox_id)
        assert gone.status_code == 200, gone.text
    assert api.http.get("/sandboxes").json()["sandboxes"] == []
    wait_until(lambda: disk.free_mb > 12)


def test_use_of_sandboxes_on_a_disk_that_others_filled_ends_well_when_there_is_room(api: Api, disk: SmallDisk) -> None:
    sandboxes = [api.made(), api.made()]
    for sandbox_id in sandboxes:
        api.says(sandbox_id, "echo kept > /workspace/kept && sync -f /workspace")
    disk.fill()
    for _ in range(2):
        for sandbox_id in sandboxes:
            answer = api.run(
                sandbox_id,
                "dd if=/dev/zero of=/workspace/more bs=1M count=8; sync -f /workspace; mkdir -p /workspace/a/b",
            )
            assert answer.status_code in (200, 507), answer.text
            answer = api.write(sandbox_id, "/workspace/file", "x" * 5_000_000)
            assert answer.status_code in (200, 507), answer.text
    disk.empty()
    wait_until(lambda: api.http.get("/ready").status_code == 200)

    def writes(sandbox_id: str) -> bool:
        answer = api.run(
            sandbox_id, "cat /workspace/kept && dd if=/dev/zero of=/workspace/new bs=1M count=20 && sync -f /workspace"
        )
        return answer.status_code == 200 and answer.json()["exit_code"] == 0 and answer.json()["stdout"] == "kept\n"

    for sandbox_id in [*sandboxes, api.made()]:
        api.run(sandbox_id, "test -e /workspace/kept || echo kept > /workspace/kept")
        wait_until(lambda: writes(sandbox_id))  # noqa: B023 - called before the next round


def test_a_sandbox_whose_file_system_failed_is_repaired_with_its_files(api: Api, disk: SmallDisk) -> None:
    sandbox = api.made()
    api.says(sandbox, "echo kept > /workspace/kept && sync -f /workspace")
    break_disk(disk, f"sandboxes/{sandbox}")
    wait_until(lambda: any(event["type"] == "disk.repaired" for event in api.events(sandbox)))
    assert api.says(sandbox, "echo new > /workspace/new && sync -f /workspace && cat /workspace/kept") == "kept\n"
    kinds = [event["type"] for event in api.events(sandbox)]
    assert kinds.index("disk.failed") < kinds.index("disk.repaired")


def test_one_that_failed_while_no_server_ran_is_repaired_by_the_next(api: Api, disk: SmallDisk) -> None:
    sandbox = api.made()
    api.says(sandbox, "echo kept > /workspace/kept && sync -f /workspace")
    api.server.kill()
    break_disk(disk, f"sandboxes/{sandbox}")
    api.server.start()
    wait_until(lambda: api.run(sandbox, "echo new > /workspace/new && sync -f /workspace").status_code == 200)
    assert api.says(sandbox, "cat /workspace/kept /workspace/new") == "kept\nnew\n"
    assert "disk.repaired" in [event["type"] for event in api.events(sandbox)]


def test_a_failed_file_system_is_507_with_a_sentence_while_there_is_no_room(api: Api, disk: SmallDisk) -> None:
    sandbox = api.made()
    disk.fill(leave_mb=5)
    break_disk(disk, f"sandboxes/{sandbox}")
    refused = api.write(sandbox, "/workspace/file", "text")
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "disk_failed"), refused.text
    assert "repair" in refused.json()["error"]["message"]
    disk.empty()
    wait_until(lambda: api.write(sandbox, "/workspace/file", "text").status_code == 200)


def test_a_machine_made_in_advance_whose_disk_failed_is_never_handed_out(api: Api, disk: SmallDisk) -> None:
    wait_until(lambda: api.http.get("/health").json()["pool"]["ready"] == 1)
    (warm,) = (disk.path / "home/local/warm").iterdir()
    break_disk(disk, f"warm/{warm.name}")
    sandbox = api.made()
    api.says(sandbox, "echo usable > /workspace/file && sync -f /workspace")


def break_disk(disk: SmallDisk, folder: str) -> None:
    """What the kernel does to an ext4 whose writes fail, made by the kernel itself on demand."""
    image = f"/home/local/{folder}/disk.img"
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if backing.read_text().strip().endswith(image):  # the path as the sandbox's own mount namespace has it
            Path(f"/sys/fs/ext4/{backing.parts[3]}/trigger_fs_error").write_text("as if a write had failed")
            return
    raise AssertionError(f"{image} is not mounted")
