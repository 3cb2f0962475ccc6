"""Callers that leave, and what is refused: the agent is told, and nothing stays behind."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent.exchange import Handover
from paddock.machine.agent.wire import Answer, Reader, Request
from tests.machine.peer import (
    PROCESS,
    SPEC,
    Peer,
    agent_that,
    answer_all,
    chunks,
    entry,
    kinds,
    process,
    refusal,
    settled,
    text,
)


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


async def test_a_descriptor_whose_taker_leaves_in_the_very_moment_it_comes_is_closed() -> None:
    released: list[int] = []
    async with agent_that(answer_all) as scene:
        link = await scene.machine._line.link()
        call = Handover(Answer.OPENED, lambda body, fd: body.u32(), lambda on, token: released.append(token))
        call.link = link
        taking = asyncio.create_task(call.answer(5))
        await asyncio.sleep(0)
        reading, writing = os.pipe()
        os.close(writing)
        call.receive(Answer.OPENED, Reader(struct.pack("<I", 77)), reading)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert released == [77]
        with pytest.raises(OSError):
            os.fstat(reading)


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
