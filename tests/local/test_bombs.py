"""A sandbox that takes all it can get: it is held, the others hardly feel it, and its owner learns why it was ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from paddock.providers.common import pressure
from paddock.providers.local import private_files
from tests.local.place import Inside, Place
from tests.support.serving import serving
from tests.support.waiting import until

FORK_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
MARK = b"\nmarked\n"
"""Behind the end of a program it changes nothing, and shows whose file it is that somebody sees."""


def mark(path: Path) -> None:
    with path.open("ab") as file:
        file.write(MARK)


async def seen_marked(inside: Inside, path: str) -> bool:
    return await inside.says(f"tail -c {len(MARK)} {path} | tr -d '\\0' | grep -c '^marked$' || true") == "1"


async def test_each_sandbox_has_its_own_file_of_what_every_command_maps(place: Place, inside: Inside) -> None:
    """One file is one lock, which a fork bomb would keep its neighbours and the host waiting for."""
    other = await place.create()
    paths = private_files.of_each_sandbox(Path("/"))
    assert any("/libc.so" in path for path in paths) and any("/ld-" in path for path in paths)
    for path in paths:
        mark(place.folder(inside.sandbox_id) / private_files.FOLDER / path.lstrip("/"))
        assert await seen_marked(inside, path), path
        assert not await seen_marked(other, path), path
        assert not Path(path).read_bytes().endswith(MARK)


async def test_what_is_shared_by_sandboxes_is_not_the_host_s(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path / "made")
    await place.provider.start()
    try:
        inside = await place.create()
        (copies,) = (tmp_path / "made").glob("host-files-*")
        for path in private_files.of_all_sandboxes(Path("/")):
            copy = copies / path.lstrip("/")
            assert await asyncio.to_thread(copy.read_bytes) == await asyncio.to_thread(Path(path).read_bytes)
            mark(copy)
            assert await seen_marked(inside, path), path
    finally:
        await place.clear()


async def test_the_copies_are_made_anew_when_a_sandbox_starts_again(place: Place, inside: Inside) -> None:
    copies = place.folder(inside.sandbox_id) / private_files.FOLDER
    before = {path: path.stat().st_ino for path in copies.rglob("*") if path.is_file()}
    assert before
    await place.end(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("echo again") == "again"
    assert {path.name for path in before} == {path.name for path in copies.rglob("*") if path.is_file()}


async def test_a_fork_bomb_is_ended_and_the_sandbox_is_used_again(place: Place, inside: Inside) -> None:
    told: list[tuple[str, str, Mapping[str, Any]]] = []

    async def notice(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        told.append((sandbox_id, kind, data))

    place.provider.tell(notice)
    await inside.put("/workspace/bomb.py", FORK_BOMB)
    process = await inside.start("exec python3 bomb.py")
    await until(lambda: bool(told), seconds=120)
    sandbox_id, kind, data = told[0]
    assert (sandbox_id, kind) == (inside.sandbox_id, "processes.killed")
    assert (data["reason"], data["limit"]) == ("fork_bomb", 128)
    assert (await inside.finish(process)).code == 137
    assert await inside.says("echo still here") == "still here"
    assert await inside.says("for i in $(seq 50); do sleep 1 & done; wait; echo many") == "many"


async def test_who_does_it_again_is_not_felt_again(place: Place, inside: Inside) -> None:
    """Its sandbox yields before the next bomb begins: by its group, or what its agent starts is idle."""
    told: list[str] = []

    async def notice(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        told.append(kind)

    place.provider.tell(notice)
    await inside.put("/workspace/bomb.py", FORK_BOMB)
    for _ in range(2):
        told.clear()
        process = await inside.start("exec python3 bomb.py")
        await until(lambda: bool(told), seconds=120)
        assert (await inside.finish(process)).code == 137
    running = place.running(inside.sandbox_id)
    if running.group is not None and "cpu" in running.group.limits:
        assert pressure.yields(running.group)
    else:
        assert os.sched_getscheduler(running.pid) == os.SCHED_IDLE


async def test_one_that_meets_its_limit_and_waits_is_no_bomb(place: Place, inside: Inside) -> None:
    told: list[str] = []

    async def notice(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        told.append(kind)

    place.provider.tell(notice)
    patient = (
        "import os, time\n"
        "for _ in range(500):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "    except OSError:\n"
        "        break\n"
        "print('full', flush=True)\n"
        "end = time.monotonic() + 2\n"
        "while time.monotonic() < end:\n"
        "    try:\n"
        "        if os.fork() == 0: os._exit(0)\n"
        "    except OSError: time.sleep(0.1)\n"
        "print('patient', flush=True)\n"
    )
    await inside.put("/workspace/patient.py", patient)
    process = await inside.start("exec python3 patient.py")
    await inside.until(process, b"patient")
    assert told == []


async def test_all_sandboxes_together_weigh_less_than_one_process_of_the_host(place: Place, inside: Inside) -> None:
    await place.need(inside.sandbox_id, "CPU limit")
    group = place.running(inside.sandbox_id).group
    assert group is not None
    if (path := group.v1.get("cpu")) is None:
        pytest.skip("only control groups of version 1 weigh processes of the host and groups against each other")
    assert int((path.parent / "cpu.shares").read_text()) < 1024


async def test_one_that_computes_for_long_yields_until_it_stops(place: Place, inside: Inside) -> None:
    await place.need(inside.sandbox_id, "CPU limit")
    group = place.running(inside.sandbox_id).group
    other = await place.create()
    assert group is not None
    loops = [await one.start("exec sh -c 'while :; do :; done'") for one in (inside, other) for _ in range(2)]
    await until(lambda: pressure.yields(group), seconds=60)
    for one, process in zip((inside, inside, other, other), loops, strict=True):
        await one.machine.signal(process, 9)
    await until(lambda: not pressure.yields(group), seconds=60)


@pytest.mark.slow
def test_the_owner_learns_why_the_processes_were_ended(tmp_path: Path) -> None:
    with serving(tmp_path) as server, SyncSandboxClient(server.url, api_key=server.key) as client:
        sandbox = client.create_sandbox("tester", resources={"pids": 64})
        client.run_command(sandbox.sandbox_id, f"cat > bomb.py <<'END'\n{FORK_BOMB}END\n")
        client.run_command(sandbox.sandbox_id, "exec python3 bomb.py", background=True)
        found = next(event for event in client.stream_events(sandbox.sandbox_id) if event.type == "processes.killed")
        assert found.data["reason"] == "fork_bomb" and "64 processes" in found.data["message"]
        assert client.run_command(sandbox.sandbox_id, "echo usable").stdout == "usable\n"
