"""An agent that lies: every lie is a clear error and ends the link."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Awaitable, Callable

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.agent.wire import MAX_PAYLOAD, ProtocolError, ReplyKind
from paddock.machine.base import Stream
from tests.machine.peer import (
    HEADER,
    PROCESS,
    SPEC,
    Peer,
    Script,
    agent_that,
    chunks,
    data,
    entry,
    follow_all,
    hello,
    process,
    read_all,
    refusal,
    text,
)
from tests.support.waiting import PATIENCE_S


async def watch(machine: AgentMachine) -> list[str]:
    async with machine.watch("/workspace") as events:
        return [event.path async for event in events]


def answering(kind: ReplyKind | int, payload: bytes = b"", **header: int) -> Script:
    """Answers the first request so, and then only listens."""

    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), kind, payload, **header)
        await peer.closed()

    return script


Act = Callable[[AgentMachine], Awaitable[object]]

LIES: dict[str, tuple[Act, Script]] = {
    "another type": (lambda m: m.process(PROCESS), answering(ReplyKind.OK)),
    "no type at all": (lambda m: m.process(PROCESS), answering(0x33)),
    "another process": (lambda m: m.process(PROCESS), answering(ReplyKind.PROCESS, process("p_0000000000000002"))),
    "a status that does not exist": (lambda m: m.process(PROCESS), answering(ReplyKind.PROCESS, process(PROCESS, 9))),
    "an exit code that does not exist": (
        lambda m: m.process(PROCESS),
        answering(ReplyKind.PROCESS, process(PROCESS, 2, 256)),
    ),
    "bytes left over": (lambda m: m.process(PROCESS), answering(ReplyKind.PROCESS, process(PROCESS) + b"x")),
    "too few bytes": (lambda m: m.process(PROCESS), answering(ReplyKind.PROCESS, process(PROCESS)[:-1])),
    "a negative size": (lambda m: m.process(PROCESS), answering(ReplyKind.PROCESS, process(PROCESS, stdout=2**63))),
    "four billion processes": (lambda m: m.processes(), answering(ReplyKind.PROCESS_LIST, b"\xff" * 4)),
    "a frame too large": (lambda m: m.processes(), answering(ReplyKind.PROCESS_LIST, length=MAX_PAYLOAD + 1)),
    "more output than asked for": (
        lambda m: m.read_output(PROCESS, Stream.STDOUT, 5, 3),
        answering(ReplyKind.OUTPUT, struct.pack("<Q", 5) + text("four")),
    ),
    "output from before the offset": (
        lambda m: m.read_output(PROCESS, Stream.STDOUT, 5, 30),
        answering(ReplyKind.OUTPUT, struct.pack("<Q", 4) + text("four")),
    ),
    "data of a third stream": (follow_all, answering(ReplyKind.DATA, data(3, 0, b"x"))),
    "an end of a process that runs": (follow_all, answering(ReplyKind.ENDED, process(PROCESS))),
    "an end that is none to one who waits": (lambda m: m.wait(PROCESS), answering(ReplyKind.ENDED, process(PROCESS))),
    "another file": (lambda m: m.stat("/workspace/a"), answering(ReplyKind.ENTRY, entry("/workspace/b"))),
    "a relative path": (lambda m: m.stat("/workspace/a"), answering(ReplyKind.ENTRY, entry("workspace/a"))),
    "a file type that does not exist": (lambda m: m.stat("/a"), answering(ReplyKind.ENTRY, entry("/a", 9))),
    "permissions that do not exist": (lambda m: m.stat("/a"), answering(ReplyKind.ENTRY, entry("/a", mode=0o100644))),
    "a file from elsewhere in a listing": (
        lambda m: m.list_directory("/workspace"),
        answering(ReplyKind.ENTRIES, struct.pack("<I", 1) + entry("/workspacex")),
    ),
    "the directory itself in its listing": (
        lambda m: m.list_directory("/workspace"),
        answering(ReplyKind.ENTRIES, struct.pack("<I", 1) + entry("/workspace/")),
    ),
    "another total than listed": (
        lambda m: m.list_directory("/workspace"),
        answering(ReplyKind.END, struct.pack("<IB", 7, 0)),
    ),
    "neither yes nor no": (lambda m: m.make_directory("/a"), answering(ReplyKind.MADE, b"\x02")),
    "a change before the watch is armed": (watch, answering(ReplyKind.EVENT, b"\x01" + text("/workspace/a"))),
    "no descriptor for a file": (
        read_all,
        answering(ReplyKind.OPENED, struct.pack("<I", 1) + entry("/workspace/file")),
    ),
    "an announced descriptor that is missing": (
        read_all,
        answering(ReplyKind.OPENED, struct.pack("<I", 1) + entry("/workspace/file"), announced=1),
    ),
    "no descriptor for a socket": (lambda m: m.dial(80), answering(ReplyKind.SOCKET)),
    "the start of a process told as its end": (
        lambda m: m.spawn(SPEC),
        answering(ReplyKind.ENDED, process(PROCESS, 2)),
    ),
    "an answer to nobody": (lambda m: m.process(PROCESS), answering(ReplyKind.OK, reserved=1)),
}


@pytest.mark.parametrize("lie", list(LIES))
async def test_a_lie_is_a_protocol_error_and_ends_the_link(lie: str) -> None:
    act, script = LIES[lie]
    async with agent_that(script) as scene:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ProtocolError):
                await act(scene.machine)
            await scene.peers[0].gone.wait()


async def test_a_change_outside_of_what_is_watched_is_a_lie() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.OK)
        await peer.say(asked, ReplyKind.EVENT, b"\x01" + text("/workspacex/a"))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(watch(scene.machine), PATIENCE_S)


async def test_the_same_output_twice_is_a_lie() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        for _ in range(2):
            await peer.say(asked, ReplyKind.DATA, data(1, 0, b"again"))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(follow_all(scene.machine), PATIENCE_S)


async def test_an_answer_with_the_number_of_no_request_fails_all_that_are_open() -> None:
    async def script(peer: Peer) -> None:
        asked = [await peer.next() for _ in range(3)]
        await peer.say(max(one.number for one in asked) + 100, ReplyKind.OK)
        await peer.closed()

    async with agent_that(script) as scene:
        acts = (scene.machine.process(PROCESS), scene.machine.stat("/a"), scene.machine.wait(PROCESS))
        results = await asyncio.wait_for(asyncio.gather(*acts, return_exceptions=True), PATIENCE_S)
        assert [type(result) for result in results] == [ProtocolError] * 3
        assert len({id(result) for result in results}) == 3


async def test_answering_twice_ends_the_link_but_not_what_was_answered() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        for _ in range(2):
            await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script) as scene:
        assert (await scene.machine.process(PROCESS)).running
        await asyncio.wait_for(scene.peers[0].gone.wait(), PATIENCE_S)
        again = asyncio.create_task(scene.machine.process(PROCESS))
        assert (await again).running
        assert len(scene.peers) == 2


async def test_an_agent_of_another_version_or_without_descriptors_is_not_spoken_with() -> None:
    for greeting in (hello(version=2), hello(features=0), hello()[:-1], hello() + b"x"):
        async with agent_that(answering(ReplyKind.HELLO_OK, greeting), greets=False) as scene:
            with pytest.raises(ProtocolError):
                await scene.machine.processes()
    async with agent_that(answering(ReplyKind.ERROR, refusal(errno.EPROTO, "too old")), greets=False) as scene:
        with pytest.raises(ProtocolError, match="too old"):
            await scene.machine.processes()


async def test_one_that_never_answers_times_out_and_the_link_stays() -> None:
    async def script(peer: Peer) -> None:
        first = await peer.next()
        second = await peer.next()
        await peer.say(second, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(first, ReplyKind.PROCESS, process(PROCESS))  # too late, and no lie
        await peer.say(await peer.next(), ReplyKind.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script, reply_seconds=0.2) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await scene.machine.process(PROCESS)
        assert (await scene.machine.process(PROCESS)).running
        assert (await scene.machine.process(PROCESS)).running
        assert len(scene.peers) == 1


@pytest.mark.parametrize(
    "act",
    [
        lambda machine: machine.processes(),
        lambda machine: machine.spawn(SPEC),
        read_all,
        lambda machine: machine.dial(80),
        watch,
        lambda machine: machine.write_file("/a", chunks(b"x")),
        lambda machine: machine.stat("/a"),
    ],
)
async def test_nothing_that_should_take_a_moment_waits_for_ever(act: Act) -> None:
    async with agent_that(Peer.closed, reply_seconds=0.05) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await asyncio.wait_for(act(scene.machine), PATIENCE_S)


async def test_one_that_does_not_even_greet_times_out() -> None:
    async with agent_that(Peer.closed, greets=False, reply_seconds=0.05) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await asyncio.wait_for(scene.machine.processes(), PATIENCE_S)


@pytest.mark.parametrize("cut", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 10])
async def test_closing_in_the_middle_of_a_frame_is_told_as_a_lost_link(cut: int) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        body = process(PROCESS)
        await peer.send((HEADER.pack(len(body), ReplyKind.PROCESS, 0, 0, asked.number) + body)[:cut])

    async with agent_that(script) as scene:
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await asyncio.wait_for(scene.machine.signal(PROCESS, 15), PATIENCE_S)
        assert len(scene.peers) == 1, "a signal must not be sent twice"
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await asyncio.wait_for(scene.machine.process(PROCESS), PATIENCE_S)
        assert len(scene.peers) == 3, "asking for a process may be done again, once"
