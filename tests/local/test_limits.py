"""The limits of a sandbox hold, and what goes over one is stopped without taking the sandbox along."""

from __future__ import annotations

import asyncio
import resource

import pytest

from paddock.providers.base import Resources
from tests.local.place import Inside, Place, as_ordinary_user
from tests.support.waiting import PATIENCE_S

HOG = "python3 -c 'b = bytearray(%d << 20); print(len(b))'"


async def test_a_process_over_the_memory_limit_dies_and_the_sandbox_lives(inside: Inside) -> None:
    assert await inside.says(HOG % 64) == str(64 << 20)
    ran = await inside.run(HOG % 512)
    assert ran.code != 0 and not ran.out
    assert await inside.says("echo still here") == "still here"


async def test_memory_is_limited_for_all_processes_together(place: Place, inside: Inside) -> None:
    await place.need(inside.sandbox_id, "memory limit")
    script = (
        "for i in 1 2 3 4; do python3 -c 'b = bytearray(100 << 20); import time; time.sleep(100)' & done; wait -n; "
        "echo one died"
    )
    process = await inside.start(f'exec bash -c "{script}"')
    await inside.until(process, b"one died")
    assert await inside.says("echo still here") == "still here"


async def test_a_flood_of_processes_ends_at_the_limit(inside: Inside) -> None:
    script = (
        "import os, time\n"
        "count = 0\n"
        "try:\n"
        "    while count < 1000:\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(100); os._exit(0)\n"
        "        count += 1\n"
        "except OSError as error:\n"
        "    print(count, error.errno, flush=True)\n"
        "time.sleep(100)\n"
    )
    await inside.put("/workspace/flood.py", script)
    process = await inside.start("exec python3 flood.py")
    count, number = (await inside.until(process, b"\n")).split()
    assert 64 < int(count) <= 128 and number == b"11"
    assert (await inside.machine.process(process)).running
    await inside.machine.signal(process, 9)
    await inside.finish(process)
    assert await inside.says("echo still here") == "still here"


async def test_a_busy_loop_gets_its_share_of_the_processor_and_no_more(place: Place) -> None:
    inside = await place.create(resources=Resources(cpu=0.5, memory_mb=256, disk_mb=128, pids=64))
    await place.need(inside.sandbox_id, "CPU limit")
    loop = "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    await inside.put("/workspace/loop.py", loop)
    spent = [float(part) for part in (await inside.says("python3 loop.py & python3 loop.py & wait")).split()]
    assert len(spent) == 2 and sum(spent) / 2 < 0.8
    assert (await inside.machine.stats()).cpu_count == 0.5


async def test_usage_is_what_the_kernel_counts(inside: Inside) -> None:
    before = await inside.machine.stats()
    await inside.says(
        "python3 -c 'import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass'"
    )
    hog = await inside.start(
        "exec python3 -c 'b = bytearray(50 << 20); print(1, flush=True); import time; time.sleep(99)'"
    )
    await inside.until(hog, b"1")
    after = await inside.machine.stats()
    assert after.cpu_seconds - before.cpu_seconds > 0.25
    assert after.memory_used - before.memory_used > 40 << 20
    assert after.memory_total == 256 << 20 and after.disk_total == 128 << 20
    assert after.process_count >= 1


async def test_what_processes_share_is_counted_once(inside: Inside) -> None:
    """Eight that forked from one, with its 40 MB; and the pages of programs that the host has as well."""
    script = """
import os, time
shared = bytearray(os.urandom(1 << 20) * 40)
for _ in range(8):
    if os.fork() == 0:
        time.sleep(99)
print("up", flush=True)
time.sleep(99)
"""
    await inside.put("/workspace/brood.py", script)
    await inside.until(await inside.start("exec python3 brood.py"), b"up")
    stats = await inside.machine.stats()
    assert stats.process_count == 9
    assert 40 << 20 <= stats.memory_used < 150 << 20


async def test_the_disk_of_a_sandbox_is_its_own_and_not_the_hosts(inside: Inside) -> None:
    before = await inside.machine.stats()
    assert before.disk_total == 128 << 20 and before.disk_used < 30 << 20
    await inside.says("dd if=/dev/urandom of=big bs=1M count=40 2>/dev/null; sync big")
    await eventually_uses(inside, before.disk_used + (40 << 20))


async def eventually_uses(inside: Inside, size: int) -> None:
    """Where the disk is folders, an answer that is a moment old is as good as another look at all of them."""
    async with asyncio.timeout(PATIENCE_S):
        while (await inside.machine.stats()).disk_used < size:
            await asyncio.sleep(0.05)
    assert (await inside.machine.stats()).disk_used < size + (8 << 20)


async def test_open_files_are_limited_but_not_scarce(inside: Inside) -> None:
    soft, hard = (int(word) for word in (await inside.says("ulimit -Sn; ulimit -Hn")).split())
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65_536 if allowed == resource.RLIM_INFINITY else min(65_536, allowed)
    assert soft == hard == most
    script = (
        "import resource, os\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.open('/dev/null', 0))\n"
        "except OSError as error: print(error.errno)\n"
        "try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))\n"
        "except (ValueError, PermissionError): print('no')\n"
    )
    await inside.put("/workspace/open.py", script)
    assert await inside.says("python3 open.py") == "24\nno"
    assert "no" in await inside.says("sudo python3 open.py")


async def test_the_size_of_cores_is_limited_to_nothing_and_no_handler_of_the_host_is_started(inside: Inside) -> None:
    script = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
    for user in ("user", "root"):
        # 1, not 0: with 0 a core_pattern that is a pipe would be run, on the host.
        assert await inside.says(f'python3 -c "{script}"', user=user) == "1 1"


async def test_a_full_disk_says_so_at_its_size_and_goes_on_when_there_is_room(place: Place, inside: Inside) -> None:
    await place.need(inside.sandbox_id, "disk limit")
    ran = await inside.run("dd if=/dev/zero of=big bs=1M count=500")
    assert ran.code != 0 and b"No space left" in ran.err
    size = (await inside.machine.stat("/workspace/big")).size
    assert 80 << 20 < size < 128 << 20
    stats = await inside.machine.stats()
    assert stats.disk_total == 128 << 20 and stats.disk_used > 80 << 20
    assert await inside.says("rm big && dd if=/dev/zero of=small bs=1M count=20 2>/dev/null && echo room") == "room"
    image = place.folder(inside.sandbox_id) / "disk.img"
    assert image.stat().st_size == 128 << 20


async def test_a_disk_full_of_empty_files_is_full_too(place: Place) -> None:
    inside = await place.create(resources=Resources(cpu=2, memory_mb=256, disk_mb=32, pids=64))
    await place.need(inside.sandbox_id, "disk limit")
    flood = (
        "import os\n"
        "count = 0\n"
        "try:\n"
        "    while count < 100_000:\n"
        "        os.close(os.open(f'/tmp/{count}', os.O_CREAT | os.O_WRONLY)); count += 1\n"
        "except OSError as error: print(error.errno)\n"
        "print(count)\n"
    )
    process = await inside.start(f'exec python3 -c "{flood}"')
    number, count = (await inside.finish(process)).text.split()
    assert number == "28" and int(count) < 10_000
    assert await inside.says("rm -f /tmp/1* && touch /tmp/again && echo room") == "room"


async def test_deleted_files_give_their_room_on_the_host_back(place: Place, inside: Inside) -> None:
    await place.need(inside.sandbox_id, "disk limit")
    image = place.folder(inside.sandbox_id) / "disk.img"
    before = image.stat().st_blocks
    await inside.says("dd if=/dev/urandom of=big bs=1M count=40 conv=fsync 2>/dev/null")
    full = image.stat().st_blocks
    assert full - before > 30 << 11
    await inside.says("rm big && sync && sync")
    async with asyncio.timeout(PATIENCE_S):
        while image.stat().st_blocks > before + (20 << 11):
            await inside.says("touch f && sync && sleep 0.2")


@as_ordinary_user
async def test_a_file_of_an_ordinary_user_is_no_larger_than_the_disk(inside: Inside) -> None:
    ran = await inside.run("head -c 200M /dev/zero > big; echo $?")
    assert ran.text != "0"
    assert (await inside.machine.stat("/workspace/big")).size <= 128 << 20


@as_ordinary_user
@pytest.mark.slow
async def test_a_sandbox_that_takes_too_much_disk_loses_its_processes(inside: Inside) -> None:
    """Not hard: it is looked at every few seconds."""
    process = await inside.start("for i in 1 2 3; do head -c 60M /dev/zero > $i; done; echo full; exec sleep 100")
    await inside.until(process, b"full")
    assert (await inside.finish(process)).code == 137
    assert await inside.says("rm 1 2 3; echo again") == "again"


async def test_each_sandbox_has_its_own_limits(place: Place, inside: Inside) -> None:
    large = await place.create(resources=Resources(cpu=2, memory_mb=900, disk_mb=64, pids=300))
    assert await large.says(HOG % 512) == str(512 << 20)
    assert (await inside.run(HOG % 512)).code != 0
    assert (await large.machine.stats()).memory_total == 900 << 20


async def test_limits_hold_after_a_restart_from_the_files(place: Place, inside: Inside) -> None:
    await place.end(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert (await again.run(HOG % 512)).code != 0
    assert await again.says(HOG % 64) == str(64 << 20)
