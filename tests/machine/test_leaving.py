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
from paddock.machine.agent.pending import DescriptorCall
from paddock.machine.agent.wire import Reader, ReplyKind, RequestKind
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
            if asked.kind is RequestKind.CANCEL:
                gone = open_requests.pop(int.from_bytes(asked.payload, "little"))
                await peer.say(gone, ReplyKind.ERROR, refusal(errno.ECANCELED))
            elif asked.kind is RequestKind.PROCESSES:
                await peer.say(asked, ReplyKind.PROCESS_LIST, bytes(4))
            else:
                open_requests[asked.number] = asked
                if asked.kind is RequestKind.WATCH:
                    await peer.say(asked, ReplyKind.OK)

    async with agent_that(script) as scene:
        machine = scene.machine

        async def follow() -> None:
            async for _ in machine.follow(PROCESS):
                pass

        async def watch() -> None:
            async with machine.watch("/workspace") as events:
                await anext(events)

        expected: list[RequestKind] = []
        for act, kind in (
            (machine.wait(PROCESS), RequestKind.WAIT),
            (follow(), RequestKind.FOLLOW),
            (watch(), RequestKind.WATCH),
            (machine.write_stdin(PROCESS, b"x"), RequestKind.STDIN),
            (machine.list_directory("/workspace"), RequestKind.LIST_DIR),
            (machine.run(SPEC), RequestKind.SPAWN),
        ):
            task = asyncio.ensure_future(act)
            expected.append(kind)
            await settled(scene, *expected)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            expected.append(RequestKind.CANCEL)
            await settled(scene, *expected)
        assert await machine.processes() == []
        assert len(scene.peers) == 1


async def test_a_wait_that_is_over_is_cancelled_and_answers_with_the_state() -> None:
    async def script(peer: Peer) -> None:
        waiting = await peer.next()
        await peer.until(RequestKind.CANCEL)
        await peer.say(waiting, ReplyKind.ENDED, process(PROCESS, 2, 0))  # it ended in the same moment
        await peer.say(await peer.next(), ReplyKind.PROCESS, process(PROCESS, 2, 0))
        await peer.closed()

    async with agent_that(script) as scene:
        assert (await scene.machine.wait(PROCESS, 0.02)).exit_code == 0
        assert kinds(scene) == [RequestKind.WAIT, RequestKind.CANCEL, RequestKind.PROCESS_GET]


async def test_a_file_that_comes_after_its_reader_has_left_is_closed(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await left.wait()
        given = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
        await peer.say(asked, ReplyKind.OPENED, struct.pack("<I", 77) + entry("/workspace/file"), [given])
        os.close(given)
        closing = await peer.next()
        assert (closing.kind, closing.payload) == (RequestKind.CLOSE, struct.pack("<I", 77))
        await peer.say(closing, ReplyKind.OK)
        await peer.closed()

    async with agent_that(script) as scene:
        writing = asyncio.create_task(scene.machine.write_file("/workspace/file", chunks(b"x")))
        await settled(scene, RequestKind.OPEN)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        left.set()
        await settled(scene, RequestKind.OPEN, RequestKind.CLOSE)


async def test_a_descriptor_whose_taker_leaves_in_the_very_moment_it_comes_is_closed() -> None:
    released: list[int] = []
    async with agent_that(answer_all) as scene:
        link = await scene.machine._connection.link()
        call = DescriptorCall(ReplyKind.OPENED, lambda body, fd: body.u32(), lambda on, token: released.append(token))
        call.link = link
        taking = asyncio.create_task(call.answer(5))
        await asyncio.sleep(0)
        reading, writing = os.pipe()
        os.close(writing)
        call.receive(ReplyKind.OPENED, Reader(struct.pack("<I", 77)), reading)
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
        await peer.say(asked, ReplyKind.OPENED, struct.pack("<I", 77) + entry("/workspace/file"), [given])
        os.close(given)
        await peer.closed()

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    async with agent_that(script) as scene:
        with pytest.raises(ConnectionResetError):
            await scene.machine.write_file("/workspace/file", broken())
        await settled(scene, RequestKind.OPEN, RequestKind.CLOSE)


async def test_a_file_is_closed_before_it_is_put_in_its_place(tmp_path: Path) -> None:
    """One that is open for writing could not be run."""
    target = tmp_path / "program"

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = os.open(target, os.O_CREAT | os.O_WRONLY, 0o755)
        await peer.say(asked, ReplyKind.OPENED, struct.pack("<I", 1) + entry("/workspace/file"), [given])
        os.close(given)
        committing = await peer.until(RequestKind.COMMIT)
        process = await asyncio.create_subprocess_exec(target)
        assert await process.wait() == 7
        await peer.say(committing, ReplyKind.ENTRY, entry("/workspace/file", size=17))
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
        await peer.say(await peer.next(), ReplyKind.ERROR, refusal(number))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(kind):
            await scene.machine.spawn(SPEC)
        assert kinds(scene) == [RequestKind.SPAWN]


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
        await peer.say(await peer.next(), ReplyKind.ERROR, refusal(number))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(kind):
            await scene.machine.write_stdin(PROCESS, b"x")


async def test_a_listing_that_was_cut_says_so() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.ENTRIES, struct.pack("<I", 1) + entry("/workspace/a"))
        await peer.say(asked, ReplyKind.END, struct.pack("<IB", 1, 1))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(errors.PayloadTooLarge):
            await scene.machine.list_directory("/workspace")


async def test_a_watch_that_lost_events_is_armed_again_and_says_look_again() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.OK)
        await peer.say(asked, ReplyKind.ERROR, refusal(errno.EOVERFLOW))
        again = await peer.until(RequestKind.WATCH)
        await peer.say(again, ReplyKind.OK)
        await peer.say(again, ReplyKind.EVENT, b"\x03" + text("/workspace"))
        await peer.say(again, ReplyKind.ERROR, refusal(errno.ENOENT))
        await peer.closed()

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        seen = [(event.path, event.change.value) async for event in events]
        assert seen == [("/workspace", "modified"), ("/workspace", "removed")]
