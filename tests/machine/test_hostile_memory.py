"""An agent that never stops: whatever it sends, and whoever does not read it, memory stays bounded."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import tracemalloc

import pytest

from paddock import errors
from paddock.machine.agent.wire import ProtocolError, ReplyKind, RequestKind
from tests.machine.peer import HEADER, PROCESS, SPEC, Peer, agent_that, data, entry, hello, process, refusal, text
from tests.support.waiting import PATIENCE_S, until


async def test_an_endless_listing_is_cut_off() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        one = entry(b"/workspace/" + b"x" * 60_000)
        while True:
            await peer.say(asked, ReplyKind.ENTRIES, struct.pack("<I", 16) + one * 16)

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                await asyncio.wait_for(scene.machine.list_directory("/workspace"), PATIENCE_S)
            assert tracemalloc.get_traced_memory()[1] < 300 << 20
        finally:
            tracemalloc.stop()


async def test_endless_output_of_a_command_is_not_kept() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        reading = asyncio.create_task(peer.closed())
        piece = b"x" * 65_536
        while sent < 64 << 20:
            await peer.say(asked, ReplyKind.DATA, data(1, sent, piece))
            sent += len(piece)
        await reading

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            await scene.machine.spawn(SPEC)
            await until(lambda: sent >= 64 << 20)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
        assert [asked.kind for asked in scene.peers[0].asked] == [
            RequestKind.HELLO,
            RequestKind.SPAWN,
            RequestKind.CANCEL,
        ]


async def test_a_consumer_that_does_not_read_makes_the_flow_stop_and_go_on_later() -> None:
    total = 8 << 20
    content = os.urandom(total)
    follows: list[int] = []

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        while True:
            offset = struct.unpack_from("<QQ", asked.payload, len(asked.payload) - 16)[0]
            follows.append(offset)
            cancelled = asyncio.create_task(peer.until(RequestKind.CANCEL))
            while offset < total and not cancelled.done():
                piece = content[offset : offset + 65_536]
                await peer.say(asked, ReplyKind.DATA, data(1, offset, piece))
                offset += len(piece)
                await asyncio.sleep(0)
            if offset >= total and not cancelled.done():
                await asyncio.sleep(0.05)
            if cancelled.done():
                await peer.say(asked, ReplyKind.ERROR, refusal(errno.ECANCELED))
                asked = await peer.until(RequestKind.FOLLOW)
                continue
            await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0, stdout=total))
            cancelled.cancel()
            await peer.closed()

    async with agent_that(script) as scene:
        given = b""
        tracemalloc.start()
        try:
            flow = scene.machine.follow(PROCESS)
            given += (await anext(flow)).data
            await until(lambda: len(scene.peers[0].asked) >= 3)  # HELLO, FOLLOW, and the CANCEL while nobody reads
            assert tracemalloc.get_traced_memory()[1] < 6 << 20
            async for chunk in flow:
                given += chunk.data
        finally:
            tracemalloc.stop()
        assert given == content
        assert len(follows) > 1 and follows[0] == 0 and follows[1] > 0


async def test_changes_that_nobody_takes_become_one() -> None:
    told = asyncio.Event()

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.OK)
        event = b"\x01" + text("/workspace/a")
        frame = HEADER.pack(len(event), ReplyKind.EVENT, 0, 0, asked.number) + event
        for _ in range(30):
            await peer.send(frame * 1000)
        await peer.say(await peer.next(), ReplyKind.PROCESS, process(PROCESS))
        told.set()
        await peer.closed()

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        await scene.machine.process(PROCESS)
        await told.wait()
        seen: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while "/workspace" not in seen:
                seen.append((await anext(events)).path)
        assert set(seen[:-1]) == {"/workspace/a"}
        assert 1_000 < len(seen) <= 10_001


async def test_requests_that_the_agent_does_not_read_are_not_piled_up() -> None:
    async def script(peer: Peer) -> None:
        await asyncio.Event().wait()

    async with agent_that(script) as scene:
        writes = [asyncio.create_task(scene.machine.write_stdin(f"p_{n:016x}", b"x" * 65_000)) for n in range(300)]
        done, waiting = await asyncio.wait(writes, timeout=1)
        assert done and waiting
        for write in done:
            assert isinstance(write.exception(), errors.ProviderUnavailable)
        for write in waiting:
            write.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_more_output_than_the_window_allows_ends_the_link() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=11))
        asked = await peer.until(RequestKind.FOLLOW_WINDOW)
        for number in range(4):
            await peer.say(asked, ReplyKind.DATA, data(1, number << 16, b"x" * 65_536))
        await peer.closed()

    async with agent_that(script, greets=False) as scene:
        chunks = scene.machine.follow(PROCESS)
        assert (await anext(chunks)).data
        await scene.peers[0].gone.wait()
        with pytest.raises(ProtocolError):
            async for _ in chunks:
                pass


async def test_what_was_taken_is_acknowledged_and_nothing_else() -> None:
    taken = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=11))
        asked = await peer.until(RequestKind.FOLLOW_WINDOW)
        for number in range(2):
            await peer.say(asked, ReplyKind.DATA, data(1, number << 16, b"x" * 65_536))
        word = await peer.until(RequestKind.WINDOW)
        assert struct.unpack("<II", word.payload) == (asked.number, 65_536)
        taken.set()
        await peer.closed()

    async with agent_that(script, greets=False) as scene:
        chunks = scene.machine.follow(PROCESS)
        assert len((await anext(chunks)).data) == 65_536
        await asyncio.wait_for(taken.wait(), PATIENCE_S)
