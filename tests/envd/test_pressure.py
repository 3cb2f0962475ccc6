"""Those who read slowly, send slowly or leave: the server holds a few pieces for each, and nobody else waits."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import LiveServer
from tests.envd.box import Box, envelope
from tests.envd.conftest import NewBox
from tests.support.waiting import PATIENCE_S


def resident() -> int:
    """Bytes of this process, in which the server runs too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


async def raw_request(
    server: LiveServer, box: Box, method: str, path: str, body: bytes = b"", **more: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
    headers = {**box.headers(), "Host": "x", "Content-Length": str(len(body)), **more}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return reader, writer


async def test_a_command_that_writes_for_ever_to_nobody_costs_nothing(server: LiveServer, box: Box) -> None:
    body = envelope(box.start("yes | head -c 300000000"))
    kind = {"Content-Type": "application/connect+json"}
    _, writer = await raw_request(server, box, "POST", "/process.Process/Start", body, **kind)
    before = resident()
    async with asyncio.timeout(PATIENCE_S), server.client() as client:
        while not await _written(client, box, "head -c 300000000", 8 << 20):
            await asyncio.sleep(0.2)
        assert resident() - before < 64 << 20
        assert (await box.run("echo others go on")).stdout == "others go on\n"
        writer.close()  # nobody waits for it any more
        while (await box.ok("process.Process/List"))["processes"]:
            await asyncio.sleep(0.2)
    assert resident() - before < 64 << 20


async def _written(client: httpx.AsyncClient, box: Box, words: str, size: int) -> bool:
    """Whether the command with these words has written so much."""
    found = (await client.get(f"/sandboxes/{box.sandbox_id}/processes")).json()["processes"]
    return any(words in each["label"] and each["stdout_size"] >= size for each in found)


async def test_a_download_that_nobody_reads_waits(server: LiveServer, box: Box) -> None:
    await box.run("head -c 200000000 /dev/zero > /workspace/large")
    before = resident()
    readers = [await raw_request(server, box, "GET", "/files?path=/workspace/large") for _ in range(5)]
    for reader, _ in readers:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert (await box.get("/etc/hostname", {"username": "root"})).status_code in (200, 404)
    assert resident() - before < 96 << 20
    for _, writer in readers:
        writer.close()
    assert (await box.run("echo on")).stdout == "on\n"


async def test_an_upload_that_breaks_off_leaves_the_server_as_it_was(server: LiveServer, box: Box) -> None:
    kind = {"Content-Type": "application/octet-stream", "Content-Length": "1000000"}
    for _ in range(5):
        _, writer = await raw_request(server, box, "POST", "/files?path=/workspace/half", b"x" * 5000, **kind)
        writer.close()
    async with asyncio.timeout(PATIENCE_S):
        while (await box.get("/workspace/half")).status_code != 200:
            await asyncio.sleep(0.05)
        # One of the five may still be on its way, and what it brings is written over ours.
        while True:
            assert (await box.put("/workspace/half", b"whole")).status_code == 200
            if (await box.get("/workspace/half")).content == b"whole":
                break


async def test_gzip_of_very_many_small_members_is_refused_and_of_blocks_is_not(box: Box) -> None:
    """Each costs the server far more than the twenty bytes that it takes."""
    refused = await box.put("/tmp/many", gzip.compress(b"") * 20_000, **{"Content-Encoding": "gzip"})
    assert refused.status_code == 400 and "very small members" in refused.text
    blocks = gzip.compress(bytes(64 << 10)) * 2_000
    assert (await box.put("/tmp/blocks", blocks, **{"Content-Encoding": "gzip"})).status_code == 200


async def test_a_gzip_bomb_goes_through_in_pieces(box: Box) -> None:
    bomb = gzip.compress(bytes(200 << 20), 9)
    before = resident()
    assert (await box.put("/workspace/bomb", bomb, **{"Content-Encoding": "gzip"})).status_code == 200
    assert resident() - before < 64 << 20
    assert (await box.run("stat -c %s /workspace/bomb")).stdout == f"{200 << 20}\n"


async def test_a_slow_upload_does_not_hold_up_others(box: Box, client: httpx.AsyncClient) -> None:
    halfway, go = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"one "
        halfway.set()
        await go.wait()
        yield b"two"

    kind = {"Content-Type": "application/octet-stream"}
    upload = asyncio.create_task(
        client.post("/files", params={"path": "/tmp/slow"}, content=slowly(), headers=box.headers(**kind))
    )
    await halfway.wait()
    assert (await box.run("echo meanwhile")).stdout == "meanwhile\n"
    go.set()
    assert (await upload).status_code == 200
    assert (await box.get("/tmp/slow")).content == b"one two"


async def test_changes_that_nobody_asks_for_hold_little_however_long_their_paths_are(box: Box, provider: str) -> None:
    if provider != "local":
        pytest.skip("has a watch of its own")
    deep = "/workspace/" + "/".join(["d" * 250] * 14)
    await box.run(f"mkdir -p {deep}")
    watchers = [await box.ok("filesystem.Filesystem/CreateWatcher", {"path": deep}) for _ in range(8)]
    before = resident()
    await box.run(f"cd {deep} && for i in $(seq 3000); do : > f$i; done")
    for watcher in watchers:
        seen = (await box.ok("filesystem.Filesystem/GetWatcherEvents", watcher))["events"]
        assert 0 < len(seen) < 1000
    assert resident() - before < 32 << 20
    async with asyncio.timeout(PATIENCE_S):  # what the agent has still to tell of the flood comes first
        names: list[str] = []
        while "after" not in names:
            await box.run(f"rm -f {deep}/after; : > {deep}/after")
            events = (await box.ok("filesystem.Filesystem/GetWatcherEvents", watchers[0]))["events"]
            names = [event["name"] for event in events]
    for watcher in watchers:
        await box.ok("filesystem.Filesystem/RemoveWatcher", watcher)


async def test_long_arguments_of_commands_are_not_remembered(box: Box) -> None:
    long = ["x" * 100_000] * 9
    await box.run("true", process={"args": ["-c", "true", *long]})
    before = resident()
    for _ in range(80):
        await box.run("true", process={"args": ["-c", "true", *long]})
    assert resident() - before < 40 << 20
    async with box.running("", process={"args": ["-c", "echo here; sleep 60", *long[:1]]}, tag="long") as stream:
        pid = await stream.pid()
        await stream.until(b"here")
        [listed] = (await box.ok("process.Process/List"))["processes"]
        assert listed["pid"] == pid and listed["tag"] == "long"
        await box.ok("process.Process/SendSignal", {"process": {"tag": "long"}, "signal": "SIGNAL_SIGKILL"})


async def test_a_list_of_users_without_end_is_read_as_far_as_it_is_short(new_box: NewBox, provider: str) -> None:
    if provider != "local":
        pytest.skip("has no list of users of its own")
    box = await new_box()
    made = "import sys; sys.stdout.write('early:x:1000:1000::/tmp\\n' + 'x' * 49 + '\\n')"
    more = "sys.stdout.write(''.join(f'{n:x}:::::/\\n' for n in range(30000)) + 'late:x:1000:1000::/tmp\\n')"
    await box.as_user("root").run(f'python3 -c "{made}; {more}" > /etc/passwd')
    assert (await box.as_user("early").call("filesystem.Filesystem/Stat", {"path": "."})).status_code == 200
    assert (await box.as_user("late").call("filesystem.Filesystem/Stat", {"path": "."})).status_code == 401
