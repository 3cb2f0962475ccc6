"""What a sandbox leaves in plain folders cannot stop what the server does for all: removing, starting, measuring."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.local.place import Inside, Place, as_ordinary_user
from tests.support.waiting import PATIENCE_S, until

DEPTH = 1500
"""More than Python's recursion goes and than the descriptors of a process; the path is 300 KB long."""
NESTED = f"""python3 - <<'END'
import os
os.chdir("/workspace")
for _ in range({DEPTH}):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("file", "w").close()
os.mkdir("shut")
os.mkdir("shut/inner")
os.chmod("shut", 0)
END"""

pytestmark = pytest.mark.timeout(180)


class Heard:
    def __init__(self, place: Place) -> None:
        self.notices: dict[str, dict[str, Any]] = {}
        place.provider.tell(self._hear)

    async def _hear(self, sandbox_id: str, kind: str, data: dict[str, Any]) -> None:
        assert kind == "processes.killed"
        self.notices[sandbox_id] = data

    async def about(self, inside: Inside) -> dict[str, Any]:
        await until(lambda: inside.sandbox_id in self.notices, 60)
        return self.notices[inside.sandbox_id]


async def test_deeply_nested_directories_are_removed(place: Place, inside: Inside) -> None:
    await inside.says(NESTED)
    await place.provider.delete(inside.sandbox_id)
    await until(lambda: not list((place.root / "trash").iterdir()), 60)


async def test_a_server_starts_whatever_is_left_in_the_trash(place: Place, inside: Inside) -> None:
    await inside.says(NESTED)
    await place.end(inside.sandbox_id)
    await place.provider.close()
    place.folder(inside.sandbox_id).rename(place.root / "trash" / f"{inside.sandbox_id}.left")
    place.provider = place.build()
    await place.provider.start()
    await until(lambda: not list((place.root / "trash").iterdir()), 60)


@as_ordinary_user
async def test_a_disk_that_cannot_be_measured_does_not_free_others_of_their_limit(place: Place, inside: Inside) -> None:
    heard = Heard(place)
    await inside.says(f"{NESTED}\nsleep 1000 >/dev/null 2>&1 &")
    assert "nested too deeply" in (await heard.about(inside))["message"]
    other = await place.create()
    await other.says("sleep 1000 >/dev/null 2>&1 & head -c 100M /dev/zero > /tmp/a; head -c 100M /dev/zero > /tmp/b")
    assert (await heard.about(other))["reason"] == "disk_limit"


@as_ordinary_user
async def test_a_shut_directory_counts(place: Place, inside: Inside) -> None:
    heard = Heard(place)
    await inside.says(
        "mkdir -p /workspace/a/b && chmod 000 /workspace/a/b /workspace/a && sudo sh -c 'sleep 1000 >/dev/null 2>&1 & "
        "head -c 100M /dev/zero > /workspace/a/b/c; head -c 100M /dev/zero > /workspace/a/b/d'"
    )
    assert (await heard.about(inside))["used_mb"] >= 200
    assert await inside.says("sudo stat -c %a /workspace/a /workspace/a/b") == "0\n0"


@as_ordinary_user
async def test_what_left_its_session_is_ended_with_the_others(place: Place, inside: Inside) -> None:
    heard = Heard(place)
    await inside.says(
        "setsid sleep 4321 >/dev/null 2>&1 & head -c 100M /dev/zero > /tmp/a; head -c 100M /dev/zero > /tmp/b"
    )
    await heard.about(inside)
    async with asyncio.timeout(PATIENCE_S):
        while "4321" in await inside.says("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"):
            await asyncio.sleep(0.1)
