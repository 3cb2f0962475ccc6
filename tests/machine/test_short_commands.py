"""Short commands: one round trip, what comes with it is kept for a moment, and never more or else than the truth."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import tracemalloc

import pytest

from paddock.machine.agent import early_output
from paddock.machine.agent.wire import ReplyKind, RequestKind
from paddock.machine.base import OutputChunk, ProcessSpec, ProcessStatus, Stream
from tests.machine.peer import PROCESS, SPEC, Peer, agent_that, data, kinds, process, refusal, text
from tests.support.waiting import PATIENCE_S, until


def short_command(out: bytes, err: bytes = b"", then: list[tuple[ReplyKind, bytes]] | None = None) -> object:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        assert asked.first_text == PROCESS.encode()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        for stream, content in ((1, out), (2, err)):
            for at in range(0, len(content), 65_536):
                await peer.say(asked, ReplyKind.DATA, data(stream, at, content[at : at + 65_536]))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 3, len(out), len(err)))
        for kind, payload in then or []:
            await peer.say(await peer.next(), kind, payload)
        await peer.closed()

    return script


async def test_a_short_command_is_one_round_trip() -> None:
    async with agent_that(short_command(b"out", b"err")) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5)
        assert (info.status, info.exit_code) == (ProcessStatus.COMPLETED, 3)
        assert (stdout, stderr) == (OutputChunk(Stream.STDOUT, 0, b"out"), OutputChunk(Stream.STDERR, 0, b"err"))
        assert kinds(scene) == [RequestKind.SPAWN]


async def test_its_output_is_cut_at_the_limit() -> None:
    async with agent_that(short_command(b"0123456789")) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5, limit=4)
        assert (info.stdout_size, stdout.data, stderr.data) == (10, b"0123", b"")
        assert kinds(scene) == [RequestKind.SPAWN]


async def test_starting_waiting_and_reading_a_short_command_are_one_round_trip_too() -> None:
    async with agent_that(short_command(b"0123456789")) as scene:
        assert (await scene.machine.spawn(SPEC)).running
        assert (await scene.machine.wait(PROCESS, 5)).exit_code == 3
        assert (await scene.machine.wait(PROCESS)).exit_code == 3
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 3, 4) == OutputChunk(Stream.STDOUT, 3, b"3456")
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 8) == OutputChunk(Stream.STDOUT, 8, b"89")
        assert kinds(scene) == [RequestKind.SPAWN]


async def test_at_the_end_of_what_came_the_agent_is_asked_whether_there_is_more() -> None:
    late = struct.pack("<Q", 10) + text("late")
    async with agent_that(short_command(b"0123456789", then=[(ReplyKind.OUTPUT, late)])) as scene:
        await scene.machine.run(SPEC, 5)
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 10) == OutputChunk(Stream.STDOUT, 10, b"late")
        assert kinds(scene) == [RequestKind.SPAWN, RequestKind.READ_OUTPUT]


async def test_a_command_that_says_too_much_is_read_from_the_spool() -> None:
    large = os.urandom((1 << 20) + 1)

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        for at in range(0, len(large), 65_536):
            await peer.say(asked, ReplyKind.DATA, data(1, at, large[at : at + 65_536]))
        await peer.until(RequestKind.CANCEL)
        await peer.say(asked, ReplyKind.ERROR, refusal(errno.ECANCELED))
        waiting = await peer.next()
        assert waiting.kind is RequestKind.WAIT
        await peer.say(waiting, ReplyKind.ENDED, process(PROCESS, 2, 0, len(large)))
        while True:
            reading = await peer.next()
            offset, limit = struct.unpack_from("<QI", reading.payload, len(reading.payload) - 12)
            await peer.say(reading, ReplyKind.OUTPUT, struct.pack("<Q", offset) + text(large[offset : offset + limit]))

    async with agent_that(script) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5, limit=2 << 20)
        assert info.stdout_size == len(large)
        assert stdout.data == large
        assert stderr.data == b""


async def test_output_with_a_gap_is_read_from_the_spool() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.DATA, data(1, 5, b"rest"))
        await peer.until(RequestKind.CANCEL)
        await peer.say(asked, ReplyKind.ERROR, refusal(errno.ECANCELED))
        await peer.say(await peer.until(RequestKind.WAIT), ReplyKind.ENDED, process(PROCESS, 2, 0, 9))
        await peer.say(await peer.until(RequestKind.READ_OUTPUT), ReplyKind.OUTPUT, struct.pack("<Q", 5) + text("rest"))
        await peer.closed()

    async with agent_that(script) as scene:
        _, stdout, _ = await scene.machine.run(SPEC, 5)
        assert stdout == OutputChunk(Stream.STDOUT, 5, b"rest", skipped=5)


async def test_output_that_did_not_come_before_the_end_is_read_from_the_spool() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.DATA, data(1, 0, b"half"))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0, 8))
        await peer.say(await peer.next(), ReplyKind.OUTPUT, bytes(8) + text("half and"))
        await peer.closed()

    async with agent_that(script) as scene:
        _, stdout, _ = await scene.machine.run(SPEC, 5)
        assert stdout.data == b"half and"


async def test_a_command_that_runs_on_is_told_as_running_with_what_it_said() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.DATA, data(1, 0, b"so far"))
        await peer.say(await peer.until(RequestKind.PROCESS_GET), ReplyKind.PROCESS, process(PROCESS, stdout=6))
        for content in (b"so far", b"", b""):
            reading = await peer.until(RequestKind.READ_OUTPUT)
            offset = struct.unpack_from("<QI", reading.payload, len(reading.payload) - 12)[0]
            await peer.say(reading, ReplyKind.OUTPUT, struct.pack("<Q", offset) + text(content))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0, 6))
        await peer.closed()

    async with agent_that(script) as scene:
        info, stdout, _ = await scene.machine.run(SPEC, 0.05)
        assert info.running
        assert stdout.data == b"so far"
        assert (await scene.machine.wait(PROCESS, 5)).exit_code == 0
        assert RequestKind.WAIT not in kinds(scene)


async def test_a_second_start_of_the_same_process_asks_for_no_output() -> None:
    async def script(peer: Peer) -> None:
        flags = []
        for _ in range(2):
            asked = await peer.next()
            flags.append(asked.payload[-(4 + 8 + 8 + 2 + 2 + 1)])
            await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        assert flags == [4, 0]
        await peer.closed()

    async with agent_that(script) as scene:
        await scene.machine.spawn(SPEC)
        await scene.machine.spawn(SPEC)


async def test_only_so_many_ended_commands_are_remembered() -> None:
    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.next()
            name = asked.first_text
            if asked.kind is RequestKind.SPAWN:
                await peer.say(asked, ReplyKind.PROCESS, process(name))
                await peer.say(asked, ReplyKind.DATA, data(1, 0, name))
                await peer.say(asked, ReplyKind.ENDED, process(name, 2, 0, len(name)))
            else:
                await peer.say(asked, ReplyKind.OUTPUT, struct.pack("<Q", 0) + text("asked"))

    async with agent_that(script) as scene:
        names = [f"p_{n:016x}" for n in range(80)]
        for name in names:
            await scene.machine.run(ProcessSpec(name, ["true"]))
        assert (await scene.machine.read_output(names[-1], Stream.STDOUT)).data == names[-1].encode()
        assert (await scene.machine.read_output(names[0], Stream.STDOUT)).data == b"asked"


async def test_only_so_much_output_of_ended_commands_is_kept() -> None:
    content = os.urandom(1 << 20)

    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.next()
            await peer.say(asked, ReplyKind.PROCESS, process(asked.first_text))
            for at in range(0, len(content), 65_536):
                await peer.say(asked, ReplyKind.DATA, data(1, at, content[at : at + 65_536]))
            await peer.say(asked, ReplyKind.ENDED, process(asked.first_text, 2, 0, len(content)))

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            for n in range(48):
                _, stdout, _ = await scene.machine.run(ProcessSpec(f"p_{n:016x}", ["true"]))
                assert stdout.data == content
            del stdout
            assert tracemalloc.get_traced_memory()[0] < 20 << 20
        finally:
            tracemalloc.stop()


async def test_only_so_much_output_of_running_commands_is_kept() -> None:
    content = os.urandom((1 << 20) - 65_536)

    async def script(peer: Peer) -> None:
        for _ in range(24):
            asked = await peer.until(RequestKind.SPAWN)
            await peer.say(asked, ReplyKind.PROCESS, process(asked.first_text))
            for at in range(0, len(content), 65_536):
                await peer.say(asked, ReplyKind.DATA, data(1, at, content[at : at + 65_536]))
        await peer.closed()

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            for n in range(24):
                await scene.machine.spawn(ProcessSpec(f"p_{n:016x}", ["true"]))
            await until(lambda: RequestKind.CANCEL in kinds(scene))
            assert tracemalloc.get_traced_memory()[0] < 20 << 20
        finally:
            tracemalloc.stop()


async def test_what_is_kept_is_let_go_of_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_output, "_KEEP_ENDED", 0.02)
    output = bytes(8) + text("out")
    async with agent_that(short_command(b"out", then=[(ReplyKind.OUTPUT, output)] * 1000)) as scene:
        await scene.machine.run(SPEC, 5)
        async with asyncio.timeout(PATIENCE_S):
            while kinds(scene)[-1] is not RequestKind.READ_OUTPUT:
                assert (await scene.machine.read_output(PROCESS, Stream.STDOUT)).data == b"out"
                await asyncio.sleep(0.005)


async def test_the_output_of_one_that_runs_long_is_no_longer_gathered_but_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_output, "_KEEP_ENDED", 0.02)
    monkeypatch.setattr(early_output, "_KEEP_RUNNING", 0.01)

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.until(RequestKind.CANCEL)
        await peer.say(asked, ReplyKind.ERROR, refusal(errno.ECANCELED))
        await peer.say(await peer.next(), ReplyKind.ENDED, process(PROCESS, 2, 0))
        await peer.closed()

    async with agent_that(script) as scene:
        info, _, _ = await scene.machine.run(SPEC, 5)
        assert info.exit_code == 0
        assert kinds(scene) == [RequestKind.SPAWN, RequestKind.CANCEL, RequestKind.WAIT]


async def test_what_a_spec_says_is_what_the_agent_is_told() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        assert asked.payload == (
            text(PROCESS)
            + struct.pack("<I", 2) + text("echo") + text("ü")
            + struct.pack("<I", 4)
            + text("PIP_BREAK_SYSTEM_PACKAGES=1") + text("PIP_ROOT_USER_ACTION=ignore")
            + text("UV_BREAK_SYSTEM_PACKAGES=1") + text("A=b=c")
            + text("/workspace/dir") + text("root")
            + struct.pack("<BHHQQ", 1 | 4, 24, 80, 1500, 16 << 20)
            + text("what was typed")
        )  # fmt: skip
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.closed()

    spec = ProcessSpec(
        PROCESS, ["echo", "ü"], cwd="/workspace//dir/", env={"A": "b=c"}, user="root", stdin=True, hard_timeout=1.5,
        label="what was typed",
    )  # fmt: skip
    async with agent_that(script) as scene:
        await scene.machine.spawn(spec)
