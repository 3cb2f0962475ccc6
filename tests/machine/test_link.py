"""The link: what goes over it and how often, what becomes of it when a caller leaves, and when it is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine, tails
from paddock.machine.agent.wire import Answer, Request
from paddock.machine.base import OutputChunk, ProcessSpec, ProcessStatus, Stream
from tests.machine.peer import HEADER, Asked, Peer, Scene, agent_that, data, entry, process, refusal, text

PROCESS = "p_0000000000000001"
SPEC = ProcessSpec(PROCESS, ["true"])


def kinds(scene: Scene, connection: int = 0) -> list[Request]:
    return [asked.kind for peer in scene.peers[connection : connection + 1] for asked in peer.asked[1:]]


async def settled(scene: Scene, *expected: Request) -> None:
    """Until the agent has got just these, after the greeting."""
    async with asyncio.timeout(5):
        while kinds(scene) != list(expected):
            await asyncio.sleep(0.001)


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


# Short commands


def short_command(out: bytes, err: bytes = b"", then: list[tuple[Answer, bytes]] | None = None) -> object:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        assert asked.first_text == PROCESS.encode()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        for stream, content in ((1, out), (2, err)):
            for at in range(0, len(content), 65_536):
                await peer.say(asked, Answer.DATA, data(stream, at, content[at : at + 65_536]))
        await peer.say(asked, Answer.ENDED, process(PROCESS, 2, 3, len(out), len(err)))
        for kind, payload in then or []:
            await peer.say(await peer.next(), kind, payload)
        await peer.closed()

    return script


async def test_a_short_command_is_one_round_trip() -> None:
    async with agent_that(short_command(b"out", b"err")) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5)
        assert (info.status, info.exit_code) == (ProcessStatus.COMPLETED, 3)
        assert (stdout, stderr) == (OutputChunk(Stream.STDOUT, 0, b"out"), OutputChunk(Stream.STDERR, 0, b"err"))
        assert kinds(scene) == [Request.SPAWN]


async def test_its_output_is_cut_at_the_limit() -> None:
    async with agent_that(short_command(b"0123456789")) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5, limit=4)
        assert (info.stdout_size, stdout.data, stderr.data) == (10, b"0123", b"")
        assert kinds(scene) == [Request.SPAWN]


async def test_starting_waiting_and_reading_a_short_command_are_one_round_trip_too() -> None:
    async with agent_that(short_command(b"0123456789")) as scene:
        assert (await scene.machine.spawn(SPEC)).running
        assert (await scene.machine.wait(PROCESS, 5)).exit_code == 3
        assert (await scene.machine.wait(PROCESS)).exit_code == 3
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 3, 4) == OutputChunk(Stream.STDOUT, 3, b"3456")
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 8) == OutputChunk(Stream.STDOUT, 8, b"89")
        assert kinds(scene) == [Request.SPAWN]


async def test_at_the_end_of_what_came_the_agent_is_asked_whether_there_is_more() -> None:
    late = struct.pack("<Q", 10) + text("late")
    async with agent_that(short_command(b"0123456789", then=[(Answer.OUTPUT, late)])) as scene:
        await scene.machine.run(SPEC, 5)
        assert await scene.machine.read_output(PROCESS, Stream.STDOUT, 10) == OutputChunk(Stream.STDOUT, 10, b"late")
        assert kinds(scene) == [Request.SPAWN, Request.READ_OUTPUT]


async def test_a_command_that_says_too_much_is_read_from_the_spool() -> None:
    large = os.urandom((1 << 20) + 1)

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        for at in range(0, len(large), 65_536):
            await peer.say(asked, Answer.DATA, data(1, at, large[at : at + 65_536]))
        await peer.until(Request.CANCEL)
        await peer.say(asked, Answer.ERROR, refusal(errno.ECANCELED))
        waiting = await peer.next()
        assert waiting.kind is Request.WAIT
        await peer.say(waiting, Answer.ENDED, process(PROCESS, 2, 0, len(large)))
        while True:
            reading = await peer.next()
            offset, limit = struct.unpack_from("<QI", reading.payload, len(reading.payload) - 12)
            await peer.say(reading, Answer.OUTPUT, struct.pack("<Q", offset) + text(large[offset : offset + limit]))

    async with agent_that(script) as scene:
        info, stdout, stderr = await scene.machine.run(SPEC, 5, limit=2 << 20)
        assert info.stdout_size == len(large)
        assert stdout.data == large
        assert stderr.data == b""


async def test_output_with_a_gap_is_read_from_the_spool() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.say(asked, Answer.DATA, data(1, 5, b"rest"))
        await peer.until(Request.CANCEL)
        await peer.say(asked, Answer.ERROR, refusal(errno.ECANCELED))
        await peer.say(await peer.until(Request.WAIT), Answer.ENDED, process(PROCESS, 2, 0, 9))
        await peer.say(await peer.until(Request.READ_OUTPUT), Answer.OUTPUT, struct.pack("<Q", 5) + text("rest"))
        await peer.closed()

    async with agent_that(script) as scene:
        _, stdout, _ = await scene.machine.run(SPEC, 5)
        assert stdout == OutputChunk(Stream.STDOUT, 5, b"rest")


async def test_a_command_that_runs_on_is_told_as_running_with_what_it_said() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.say(asked, Answer.DATA, data(1, 0, b"so far"))
        await peer.say(await peer.until(Request.PROCESS_GET), Answer.PROCESS, process(PROCESS, stdout=6))
        for content in (b"so far", b"", b""):
            reading = await peer.until(Request.READ_OUTPUT)
            offset = struct.unpack_from("<QI", reading.payload, len(reading.payload) - 12)[0]
            await peer.say(reading, Answer.OUTPUT, struct.pack("<Q", offset) + text(content))
        await peer.say(asked, Answer.ENDED, process(PROCESS, 2, 0, 6))
        await peer.closed()

    async with agent_that(script) as scene:
        info, stdout, _ = await scene.machine.run(SPEC, 0.05)
        assert info.running
        assert stdout.data == b"so far"
        assert (await scene.machine.wait(PROCESS, 5)).exit_code == 0
        assert Request.WAIT not in kinds(scene)


async def test_a_second_start_of_the_same_process_asks_for_no_output() -> None:
    async def script(peer: Peer) -> None:
        flags = []
        for _ in range(2):
            asked = await peer.next()
            flags.append(asked.payload[-(4 + 8 + 8 + 2 + 2 + 1)])
            await peer.say(asked, Answer.PROCESS, process(PROCESS))
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
            if asked.kind is Request.SPAWN:
                await peer.say(asked, Answer.PROCESS, process(name))
                await peer.say(asked, Answer.DATA, data(1, 0, name))
                await peer.say(asked, Answer.ENDED, process(name, 2, 0, len(name)))
            else:
                await peer.say(asked, Answer.OUTPUT, struct.pack("<Q", 0) + text("asked"))

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
            await peer.say(asked, Answer.PROCESS, process(asked.first_text))
            for at in range(0, len(content), 65_536):
                await peer.say(asked, Answer.DATA, data(1, at, content[at : at + 65_536]))
            await peer.say(asked, Answer.ENDED, process(asked.first_text, 2, 0, len(content)))

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


async def test_what_is_kept_is_let_go_of_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_KEEP_ENDED", 0.02)
    output = bytes(8) + text("out")
    async with agent_that(short_command(b"out", then=[(Answer.OUTPUT, output)] * 1000)) as scene:
        await scene.machine.run(SPEC, 5)
        async with asyncio.timeout(5):
            while kinds(scene)[-1] is not Request.READ_OUTPUT:
                assert (await scene.machine.read_output(PROCESS, Stream.STDOUT)).data == b"out"
                await asyncio.sleep(0.005)


async def test_the_output_of_one_that_runs_long_is_no_longer_gathered_but_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "_KEEP_ENDED", 0.02)
    monkeypatch.setattr(tails, "_KEEP_RUNNING", 0.01)

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.until(Request.CANCEL)
        await peer.say(asked, Answer.ERROR, refusal(errno.ECANCELED))
        await peer.say(await peer.next(), Answer.ENDED, process(PROCESS, 2, 0))
        await peer.closed()

    async with agent_that(script) as scene:
        info, _, _ = await scene.machine.run(SPEC, 5)
        assert info.exit_code == 0
        assert kinds(scene) == [Request.SPAWN, Request.CANCEL, Request.WAIT]


async def test_what_a_spec_says_is_what_the_agent_is_told() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        assert asked.payload == (
            text(PROCESS)
            + struct.pack("<I", 2) + text("echo") + text("ü")
            + struct.pack("<I", 1) + text("A=b=c")
            + text("/workspace/dir") + text("root")
            + struct.pack("<BHHQQ", 1 | 4, 24, 80, 1500, 16 << 20)
            + text("what was typed")
        )  # fmt: skip
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.closed()

    spec = ProcessSpec(
        PROCESS, ["echo", "ü"], cwd="/workspace//dir/", env={"A": "b=c"}, user="root", stdin=True, hard_timeout=1.5,
        label="what was typed",
    )  # fmt: skip
    async with agent_that(script) as scene:
        await scene.machine.spawn(spec)


# Leaving


async def test_who_stops_waiting_says_so_to_the_agent() -> None:
    async def script(peer: Peer) -> None:
        open_requests = {}
        while True:
            asked = await peer.next()
            if asked.kind is Request.CANCEL:
                gone = open_requests.pop(int.from_bytes(asked.payload, "little"))
                await peer.say(gone, Answer.ERROR, refusal(errno.ECANCELED))
            elif asked.kind is Request.PROCESSES:
                await peer.say(asked, Answer.PROCESS_LIST, bytes(4))
            else:
                open_requests[asked.number] = asked
                if asked.kind is Request.WATCH:
                    await peer.say(asked, Answer.OK)

    async with agent_that(script) as scene:
        machine = scene.machine

        async def follow() -> None:
            async for _ in machine.follow(PROCESS):
                pass

        async def watch() -> None:
            async with machine.watch("/workspace") as events:
                await anext(events)

        expected: list[Request] = []
        for act, kind in (
            (machine.wait(PROCESS), Request.WAIT),
            (follow(), Request.FOLLOW),
            (watch(), Request.WATCH),
            (machine.write_stdin(PROCESS, b"x"), Request.STDIN),
            (machine.list_directory("/workspace"), Request.LIST_DIR),
            (machine.run(SPEC), Request.SPAWN),
        ):
            task = asyncio.ensure_future(act)
            expected.append(kind)
            await settled(scene, *expected)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            expected.append(Request.CANCEL)
            await settled(scene, *expected)
        assert await machine.processes() == []
        assert len(scene.peers) == 1


async def test_a_wait_that_is_over_is_cancelled_and_answers_with_the_state() -> None:
    async def script(peer: Peer) -> None:
        waiting = await peer.next()
        await peer.until(Request.CANCEL)
        await peer.say(waiting, Answer.ENDED, process(PROCESS, 2, 0))  # it ended in the same moment
        await peer.say(await peer.next(), Answer.PROCESS, process(PROCESS, 2, 0))
        await peer.closed()

    async with agent_that(script) as scene:
        assert (await scene.machine.wait(PROCESS, 0.02)).exit_code == 0
        assert kinds(scene) == [Request.WAIT, Request.CANCEL, Request.PROCESS_GET]


async def test_a_file_that_comes_after_its_reader_has_left_is_closed(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await left.wait()
        given = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
        await peer.say(asked, Answer.OPENED, struct.pack("<I", 77) + entry("/workspace/file"), [given])
        os.close(given)
        closing = await peer.next()
        assert (closing.kind, closing.payload) == (Request.CLOSE, struct.pack("<I", 77))
        await peer.say(closing, Answer.OK)
        await peer.closed()

    async with agent_that(script) as scene:
        writing = asyncio.create_task(scene.machine.write_file("/workspace/file", chunks(b"x")))
        await settled(scene, Request.OPEN)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        left.set()
        await settled(scene, Request.OPEN, Request.CLOSE)


async def test_a_file_whose_reader_leaves_in_the_very_moment_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
        await peer.say(asked, Answer.OPENED, struct.pack("<I", 77) + entry("/workspace/file"), [given])
        os.close(given)
        writing.cancel()
        await peer.closed()

    async with agent_that(script) as scene:
        writing = asyncio.create_task(scene.machine.write_file("/workspace/file", chunks(b"x")))
        with pytest.raises(asyncio.CancelledError):
            await writing
        await settled(scene, Request.OPEN, Request.CLOSE)


async def test_a_writer_that_fails_gives_its_file_back_uncommitted(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
        await peer.say(asked, Answer.OPENED, struct.pack("<I", 77) + entry("/workspace/file"), [given])
        os.close(given)
        await peer.closed()

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    async with agent_that(script) as scene:
        with pytest.raises(ConnectionResetError):
            await scene.machine.write_file("/workspace/file", broken())
        await settled(scene, Request.OPEN, Request.CLOSE)


async def test_a_file_is_closed_before_it_is_put_in_its_place(tmp_path: Path) -> None:
    """One that is open for writing could not be run."""
    target = tmp_path / "program"

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = os.open(target, os.O_CREAT | os.O_WRONLY, 0o755)
        await peer.say(asked, Answer.OPENED, struct.pack("<I", 1) + entry("/workspace/file"), [given])
        os.close(given)
        committing = await peer.until(Request.COMMIT)
        process = await asyncio.create_subprocess_exec(target)
        assert await process.wait() == 7
        await peer.say(committing, Answer.ENTRY, entry("/workspace/file", size=17))
        await peer.closed()

    async with agent_that(script) as scene:
        info = await scene.machine.write_file("/workspace/file", chunks(b"#!/bin/sh\n", b"exit 7\n"))
        assert info.size == 17


# Losing the link


async def hang_up(peer: Peer) -> None:
    await peer.next()


async def answer_all(peer: Peer) -> None:
    while True:
        asked = await peer.next()
        await peer.say(asked, *plain_answer(asked))


def plain_answer(asked: Asked) -> tuple[Answer, bytes]:
    match asked.kind:
        case Request.SPAWN | Request.PROCESS_GET:
            return Answer.PROCESS, process(asked.first_text)
        case Request.WAIT:
            return Answer.ENDED, process(asked.first_text, 2, 0)
        case Request.PROCESSES:
            return Answer.PROCESS_LIST, bytes(4)
        case _:
            return Answer.OK, b""


async def test_a_link_lost_between_two_requests_is_made_again() -> None:
    async def one_answer(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, *plain_answer(asked))

    async with agent_that(one_answer, answer_all) as scene:
        await scene.machine.processes()
        await scene.peers[0].gone.wait()
        await scene.machine.signal(PROCESS, 15)
        assert [peer.asked[-1].kind for peer in scene.peers] == [Request.PROCESSES, Request.SIGNAL]


async def test_what_may_be_done_twice_is_asked_again_once() -> None:
    async with agent_that(hang_up, answer_all) as scene:
        assert (await scene.machine.spawn(SPEC)).running
        assert len(scene.peers) == 2
    async with agent_that(hang_up, answer_all) as scene:
        assert not (await scene.machine.wait(PROCESS)).running
    async with agent_that(hang_up) as scene:
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await scene.machine.spawn(SPEC)
        assert len(scene.peers) == 2


async def test_what_must_not_be_done_twice_is_not_asked_again() -> None:
    for act in (
        lambda machine: machine.signal(PROCESS, 9),
        lambda machine: machine.write_stdin(PROCESS, b"x"),
        lambda machine: machine.remove("/workspace/file"),
        lambda machine: machine.move("/workspace/a", "/workspace/b"),
    ):
        async with agent_that(hang_up, answer_all) as scene:
            with pytest.raises(errors.ProviderUnavailable, match="closed"):
                await act(scene.machine)
            assert len(scene.peers) == 1


async def test_a_follower_goes_on_over_a_new_link_where_it_was() -> None:
    async def first(peer: Peer) -> None:
        await peer.say(await peer.next(), Answer.DATA, data(1, 0, b"before "))

    async def second(peer: Peer) -> None:
        asked = await peer.next()
        assert struct.unpack_from("<QQ", asked.payload, len(asked.payload) - 16) == (7, 0)
        await peer.say(asked, Answer.DATA, data(1, 7, b"after"))
        await peer.say(asked, Answer.ENDED, process(PROCESS, 2, 0, 12))
        await peer.closed()

    async with agent_that(first, second) as scene:
        given = [chunk.data async for chunk in scene.machine.follow(PROCESS)]
        assert b"".join(given) == b"before after"


async def test_a_command_goes_on_being_waited_for_over_a_new_link() -> None:
    async def first(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.say(asked, Answer.DATA, data(1, 0, b"half"))

    async def second(peer: Peer) -> None:
        await peer.say(await peer.until(Request.WAIT), Answer.ENDED, process(PROCESS, 2, 0, 8))
        await peer.say(await peer.until(Request.READ_OUTPUT), Answer.OUTPUT, bytes(8) + text("half and"))
        await peer.closed()

    async with agent_that(first, second) as scene:
        info, stdout, _ = await scene.machine.run(SPEC, 5)
        assert (info.exit_code, stdout.data) == (0, b"half and")


async def test_a_watch_ends_with_an_error_when_the_link_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), Answer.OK)

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        with pytest.raises(errors.ProviderUnavailable):
            await anext(events)


async def test_a_machine_that_was_closed_says_so() -> None:
    async with agent_that(answer_all) as scene:
        waiting = asyncio.create_task(scene.machine.wait(PROCESS))
        await scene.machine.processes()
        await scene.machine.aclose()
        with pytest.raises(errors.ProviderUnavailable):
            await scene.machine.processes()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_sandbox_that_cannot_be_connected_to_says_so() -> None:
    async def connect() -> socket.socket:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    machine = AgentMachine("tester_00000000", connect, dict)
    with pytest.raises(errors.ProviderUnavailable, match="refused"):
        await machine.processes()


async def test_many_who_need_a_link_wait_for_the_same_one_and_fail_together() -> None:
    attempts = 0

    async def connect() -> socket.socket:
        nonlocal attempts
        attempts += 1
        await asyncio.Event().wait()
        raise AssertionError

    machine = AgentMachine("tester_00000000", connect, dict, reply_seconds=0.1)
    async with asyncio.timeout(1):
        results = await asyncio.gather(*(machine.processes() for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {errors.ProviderTimeout}
    assert attempts == 1


async def test_closing_while_connecting_ends_all_who_wait_with_an_error() -> None:
    connecting = asyncio.Event()

    async def connect() -> socket.socket:
        connecting.set()
        await asyncio.Event().wait()
        raise AssertionError

    machine = AgentMachine("tester_00000000", connect, dict)
    waiting = [asyncio.create_task(machine.processes()) for _ in range(3)]
    await connecting.wait()
    waiting[0].cancel()
    await machine.aclose()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [
        asyncio.CancelledError, errors.ProviderUnavailable, errors.ProviderUnavailable,
    ]  # fmt: skip


async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    async def shuffled(peer: Peer) -> None:
        waiting = [await peer.next() for _ in range(200)]
        frames = b""
        for asked in reversed(waiting):
            body = process(asked.first_text)
            frames += HEADER.pack(len(body), Answer.PROCESS, 0, 0, asked.number) + body
        await peer.send(frames)
        await peer.closed()

    async with agent_that(shuffled) as scene:
        names = [f"p_{n:016x}" for n in range(200)]
        found = await asyncio.gather(*(scene.machine.process(name) for name in names))
        assert [info.process_id for info in found] == names
        assert len(scene.peers) == 1


async def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole() -> None:
    argument = "x" * (1 << 20)

    async def script(peer: Peer) -> None:
        await asyncio.sleep(0.02)
        asked = await peer.next()
        assert argument.encode() in asked.payload
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script) as scene:
        await scene.machine.spawn(ProcessSpec(PROCESS, ["echo", argument]))


# What is refused


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, errors.PathNotFound),
        (errno.ENOTDIR, errors.PathConflict),
        (errno.EACCES, errors.PathDenied),
        (errno.E2BIG, errors.Invalid),
        (errno.EINVAL, errors.Invalid),
        (errno.EAGAIN, errors.Conflict),
        (errno.EIO, errors.ProviderRefused),
    ],
)
async def test_why_a_command_was_not_started_is_told(number: int, kind: type[errors.PaddockError]) -> None:
    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), Answer.ERROR, refusal(number))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(kind):
            await scene.machine.spawn(SPEC)
        assert kinds(scene) == [Request.SPAWN]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ESRCH, errors.ProcessNotFound),
        (errno.EPIPE, errors.ProcessEnded),
        (errno.EBADF, errors.Conflict),
        (errno.ENOTTY, errors.Conflict),
        (errno.EINVAL, errors.Invalid),
    ],
)
async def test_why_nothing_was_done_to_a_process_is_told(number: int, kind: type[errors.PaddockError]) -> None:
    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), Answer.ERROR, refusal(number))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(kind):
            await scene.machine.write_stdin(PROCESS, b"x")


async def test_a_listing_that_was_cut_says_so() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.ENTRIES, struct.pack("<I", 1) + entry("/workspace/a"))
        await peer.say(asked, Answer.END, struct.pack("<IB", 1, 1))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(errors.PayloadTooLarge):
            await scene.machine.list_directory("/workspace")


async def test_a_watch_that_lost_events_is_armed_again_and_says_look_again() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.OK)
        await peer.say(asked, Answer.ERROR, refusal(errno.EOVERFLOW))
        again = await peer.until(Request.WATCH)
        await peer.say(again, Answer.OK)
        await peer.say(again, Answer.EVENT, b"\x03" + text("/workspace"))
        await peer.say(again, Answer.ERROR, refusal(errno.ENOENT))
        await peer.closed()

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        seen = [(event.path, event.change.value) async for event in events]
        assert seen == [("/workspace", "modified"), ("/workspace", "removed")]
