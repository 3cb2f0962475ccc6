"""The additions to the agent's protocol on the host's side: used only where the agent knows them, and not believed."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.agent.wire import ProtocolError, ReplyKind, RequestKind
from paddock.machine.base import MAX_NOTE, OutputChunk, ProcessInfo, ProcessSpec
from tests.machine.peer import PROCESS, SPEC, Peer, Script, agent_that, data, entry, hello, process, text
from tests.support.waiting import PATIENCE_S

Act = Callable[[AgentMachine], Awaitable[object]]


async def begun(machine: AgentMachine) -> list[ProcessInfo | OutputChunk]:
    return [item async for item in machine.begin(SPEC)]


async def settled(machine: AgentMachine) -> object:
    async with machine.watch("/workspace") as events:
        return await events.settled()


def knowing(*answers: tuple[ReplyKind, bytes], features: int = 3) -> Script:
    """An agent that knows the additions, and gives these answers to the first request."""

    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=features))
        asked = await peer.next()
        for kind, payload in answers:
            await peer.say(asked, kind, payload)
        await peer.closed()

    return script


def pinned(*files: dict[str, str]) -> bytes:
    one = [
        struct.pack("<I", len(file)) + b"".join(text(name) + text(value) for name, value in file.items())
        for file in files
    ]
    return struct.pack("<I", len(files)) + b"".join(one)


LIES: dict[str, tuple[Act, Script]] = {
    "attributes of more files": (lambda m: m.attributes(["/a"]), knowing((ReplyKind.ATTRIBUTES, pinned({}, {})))),
    "attributes of other kinds": (
        lambda m: m.attributes(["/a"]),
        knowing((ReplyKind.ATTRIBUTES, pinned({"security.x": "y"}))),
    ),
    "four billion files": (lambda m: m.attributes(["/a"]), knowing((ReplyKind.ATTRIBUTES, b"\xff" * 4))),
    "four billion attributes": (
        lambda m: m.attributes(["/a"]),
        knowing((ReplyKind.ATTRIBUTES, struct.pack("<I", 1) + b"\xff" * 4)),
    ),
    "a note that is too long": (lambda m: m.note(PROCESS), knowing((ReplyKind.BYTES, text(b"x" * (MAX_NOTE + 1))))),
    "a path that is not absolute": (lambda m: m.resolve("/a"), knowing((ReplyKind.ENTRY, entry("a")))),
    "output before the start": (begun, knowing((ReplyKind.DATA, data(1, 0, b"x")))),
    "an end before the start": (begun, knowing((ReplyKind.ENDED, process(PROCESS, 2, 0)))),
    "two starts": (begun, knowing(*[(ReplyKind.PROCESS, process(PROCESS))] * 2)),
    "the start of another": (begun, knowing((ReplyKind.PROCESS, process("p_0000000000000002")))),
    "an end that is none": (begun, knowing((ReplyKind.PROCESS, process(PROCESS)), (ReplyKind.ENDED, process(PROCESS)))),
    "a change that does not exist": (
        settled,
        knowing((ReplyKind.OK, b""), (ReplyKind.EVENT, b"\x07" + text("/workspace/a"))),
    ),
}


@pytest.mark.parametrize("lie", list(LIES))
async def test_a_lie_is_a_protocol_error_and_ends_the_link(lie: str) -> None:
    act, script = LIES[lie]
    async with agent_that(script, greets=False) as scene:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ProtocolError):
                await act(scene.machine)
            await scene.peers[0].gone.wait()


async def test_a_process_is_begun_and_followed_in_one_request() -> None:
    answers = (
        (ReplyKind.PROCESS, process(PROCESS)),
        (ReplyKind.DATA, data(1, 0, b"out")),
        (ReplyKind.ENDED, process(PROCESS, 2, 0, stdout=3)),
    )
    async with agent_that(knowing(*answers), greets=False) as scene:
        async with asyncio.timeout(PATIENCE_S):
            first, chunk, last = await begun(scene.machine)
        assert isinstance(first, ProcessInfo) and isinstance(last, ProcessInfo)
        assert (first.running, last.exit_code) == (True, 0)
        assert isinstance(chunk, OutputChunk) and chunk.data == b"out"
        assert [asked.kind for asked in scene.peers[0].asked] == [RequestKind.HELLO, RequestKind.SPAWN]


async def test_a_link_that_is_lost_on_the_way_is_taken_up_where_it_was() -> None:
    async def breaks(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=3))
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.DATA, data(1, 0, b"one"))

    async def goes_on(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=3))
        asked = await peer.until(RequestKind.FOLLOW_ALL)
        assert asked.payload.endswith(struct.pack("<QQ", 3, 0))
        await peer.say(asked, ReplyKind.DATA, data(1, 3, b"two"))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0, stdout=6))
        await peer.closed()

    async with agent_that(breaks, goes_on, greets=False) as scene:
        async with asyncio.timeout(PATIENCE_S):
            items = await begun(scene.machine)
        assert b"".join(item.data for item in items if isinstance(item, OutputChunk)) == b"onetwo"
        assert not scene.failures


async def test_an_agent_of_the_first_version_is_not_asked_for_more() -> None:
    async def old(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=1))
        asked = await peer.until(RequestKind.SPAWN)
        assert asked.payload.endswith(text("a label"))
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0))
        follows = await peer.next()
        assert follows.kind is RequestKind.FOLLOW
        await peer.say(follows, ReplyKind.ENDED, process(PROCESS, 2, 0))
        await peer.closed()

    async with agent_that(old, greets=False) as scene:
        spec = ProcessSpec(PROCESS, ["true"], label="a label", note=b"a note", strict=True)
        async with asyncio.timeout(PATIENCE_S):
            assert len([item async for item in scene.machine.begin(spec)]) == 2
            assert await scene.machine.note(PROCESS) == b""
            assert [chunk async for chunk in scene.machine.follow(PROCESS, linger=True)] == []
        assert not scene.failures


async def test_what_nobody_waits_for_any_more_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=3))
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        stop = await peer.until(RequestKind.CANCEL)
        assert stop.payload == struct.pack("<I", asked.number)
        cancelled.set()
        await peer.closed()

    async with agent_that(script, greets=False) as scene:
        items = scene.machine.begin(SPEC)
        async with asyncio.timeout(PATIENCE_S):
            await anext(items)
            await items.aclose()
            await cancelled.wait()


async def test_a_command_that_does_not_start_in_time_is_told() -> None:
    async def silent(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello(features=3))
        await peer.closed()

    async with agent_that(silent, greets=False, reply_seconds=0.1) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await asyncio.wait_for(begun(scene.machine), PATIENCE_S)
