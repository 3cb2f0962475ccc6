"""An agent that lies: every lie is a clear error, ends the link, and leaves neither descriptors nor memory behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.agent.wire import MAX_PAYLOAD, Answer, ProtocolError, Request
from paddock.machine.base import ProcessSpec, Stream
from tests.machine.peer import (
    HEADER,
    Peer,
    Script,
    agent_that,
    data,
    entry,
    hello,
    process,
    refusal,
    text,
)

PROCESS = "p_0000000000000001"
SPEC = ProcessSpec(PROCESS, ["true"])


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read(machine: AgentMachine, path: str = "/workspace/file") -> bytes:
    return b"".join([piece async for piece in machine.read_file(path)])


async def follow(machine: AgentMachine) -> list[bytes]:
    return [chunk.data async for chunk in machine.follow(PROCESS)]


async def watch(machine: AgentMachine) -> list[str]:
    async with machine.watch("/workspace") as events:
        return [event.path async for event in events]


def answering(kind: Answer | int, payload: bytes = b"", **header: int) -> Script:
    """Answers the first request so, and then only listens."""

    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), kind, payload, **header)
        await peer.closed()

    return script


Act = Callable[[AgentMachine], Awaitable[object]]

LIES: dict[str, tuple[Act, Script]] = {
    "another type": (lambda m: m.process(PROCESS), answering(Answer.OK)),
    "no type at all": (lambda m: m.process(PROCESS), answering(0x33)),
    "another process": (lambda m: m.process(PROCESS), answering(Answer.PROCESS, process("p_0000000000000002"))),
    "a status that does not exist": (lambda m: m.process(PROCESS), answering(Answer.PROCESS, process(PROCESS, 9))),
    "an exit code that does not exist": (
        lambda m: m.process(PROCESS),
        answering(Answer.PROCESS, process(PROCESS, 2, 256)),
    ),
    "bytes left over": (lambda m: m.process(PROCESS), answering(Answer.PROCESS, process(PROCESS) + b"x")),
    "too few bytes": (lambda m: m.process(PROCESS), answering(Answer.PROCESS, process(PROCESS)[:-1])),
    "a negative size": (lambda m: m.process(PROCESS), answering(Answer.PROCESS, process(PROCESS, stdout=2**63))),
    "four billion processes": (lambda m: m.processes(), answering(Answer.PROCESS_LIST, b"\xff" * 4)),
    "a frame too large": (lambda m: m.processes(), answering(Answer.PROCESS_LIST, length=MAX_PAYLOAD + 1)),
    "more output than asked for": (
        lambda m: m.read_output(PROCESS, Stream.STDOUT, 5, 3),
        answering(Answer.OUTPUT, struct.pack("<Q", 5) + text("four")),
    ),
    "output from before the offset": (
        lambda m: m.read_output(PROCESS, Stream.STDOUT, 5, 30),
        answering(Answer.OUTPUT, struct.pack("<Q", 4) + text("four")),
    ),
    "data of a third stream": (follow, answering(Answer.DATA, data(3, 0, b"x"))),
    "an end of a process that runs": (follow, answering(Answer.ENDED, process(PROCESS))),
    "an end that is none to one who waits": (lambda m: m.wait(PROCESS), answering(Answer.ENDED, process(PROCESS))),
    "another file": (lambda m: m.stat("/workspace/a"), answering(Answer.ENTRY, entry("/workspace/b"))),
    "a relative path": (lambda m: m.stat("/workspace/a"), answering(Answer.ENTRY, entry("workspace/a"))),
    "a file type that does not exist": (lambda m: m.stat("/a"), answering(Answer.ENTRY, entry("/a", 9))),
    "permissions that do not exist": (lambda m: m.stat("/a"), answering(Answer.ENTRY, entry("/a", mode=0o100644))),
    "a file from elsewhere in a listing": (
        lambda m: m.list_directory("/workspace"),
        answering(Answer.ENTRIES, struct.pack("<I", 1) + entry("/workspacex")),
    ),
    "the directory itself in its listing": (
        lambda m: m.list_directory("/workspace"),
        answering(Answer.ENTRIES, struct.pack("<I", 1) + entry("/workspace/")),
    ),
    "another total than listed": (
        lambda m: m.list_directory("/workspace"),
        answering(Answer.END, struct.pack("<IB", 7, 0)),
    ),
    "neither yes nor no": (lambda m: m.make_directory("/a"), answering(Answer.MADE, b"\x02")),
    "a change before the watch is armed": (watch, answering(Answer.EVENT, b"\x01" + text("/workspace/a"))),
    "no descriptor for a file": (read, answering(Answer.OPENED, struct.pack("<I", 1) + entry("/workspace/file"))),
    "an announced descriptor that is missing": (
        read,
        answering(Answer.OPENED, struct.pack("<I", 1) + entry("/workspace/file"), announced=1),
    ),
    "no descriptor for a socket": (lambda m: m.dial(80), answering(Answer.SOCKET)),
    "the start of a process told as its end": (lambda m: m.spawn(SPEC), answering(Answer.ENDED, process(PROCESS, 2))),
    "an answer to nobody": (lambda m: m.process(PROCESS), answering(Answer.OK, reserved=1)),
}


@pytest.mark.parametrize("lie", list(LIES))
async def test_a_lie_is_a_protocol_error_and_ends_the_link(lie: str) -> None:
    act, script = LIES[lie]
    async with agent_that(script) as scene:
        async with asyncio.timeout(5):
            with pytest.raises(ProtocolError):
                await act(scene.machine)
            await scene.peers[0].gone.wait()


async def test_a_change_outside_of_what_is_watched_is_a_lie() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, Answer.OK)
        await peer.say(asked, Answer.EVENT, b"\x01" + text("/workspacex/a"))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(watch(scene.machine), 5)


async def test_the_same_output_twice_is_a_lie() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        for _ in range(2):
            await peer.say(asked, Answer.DATA, data(1, 0, b"again"))
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(follow(scene.machine), 5)


async def test_an_answer_with_the_number_of_no_request_fails_all_that_are_open() -> None:
    async def script(peer: Peer) -> None:
        asked = [await peer.next() for _ in range(3)]
        await peer.say(max(one.number for one in asked) + 100, Answer.OK)
        await peer.closed()

    async with agent_that(script) as scene:
        acts = (scene.machine.process(PROCESS), scene.machine.stat("/a"), scene.machine.wait(PROCESS))
        results = await asyncio.wait_for(asyncio.gather(*acts, return_exceptions=True), 5)
        assert [type(result) for result in results] == [ProtocolError] * 3
        assert len({id(result) for result in results}) == 3


async def test_answering_twice_ends_the_link_but_not_what_was_answered() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        for _ in range(2):
            await peer.say(asked, Answer.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script) as scene:
        assert (await scene.machine.process(PROCESS)).running
        await asyncio.wait_for(scene.peers[0].gone.wait(), 5)
        again = asyncio.create_task(scene.machine.process(PROCESS))
        assert (await again).running
        assert len(scene.peers) == 2


async def test_an_agent_of_another_version_or_without_descriptors_is_not_spoken_with() -> None:
    for greeting in (hello(version=2), hello(features=0), hello()[:-1], hello() + b"x"):
        async with agent_that(answering(Answer.HELLO_OK, greeting), greets=False) as scene:
            with pytest.raises(ProtocolError):
                await scene.machine.processes()
    async with agent_that(answering(Answer.ERROR, refusal(errno.EPROTO, "too old")), greets=False) as scene:
        with pytest.raises(ProtocolError, match="too old"):
            await scene.machine.processes()


async def test_one_that_never_answers_times_out_and_the_link_stays() -> None:
    async def script(peer: Peer) -> None:
        first = await peer.next()
        second = await peer.next()
        await peer.say(second, Answer.PROCESS, process(PROCESS))
        await peer.say(first, Answer.PROCESS, process(PROCESS))  # too late, and no lie
        await peer.say(await peer.next(), Answer.PROCESS, process(PROCESS))
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
        read,
        lambda machine: machine.dial(80),
        watch,
        lambda machine: machine.write_file("/a", chunks(b"x")),
        lambda machine: machine.stat("/a"),
    ],
)
async def test_nothing_that_should_take_a_moment_waits_for_ever(act: Act) -> None:
    async with agent_that(Peer.closed, reply_seconds=0.05) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await asyncio.wait_for(act(scene.machine), 5)


async def test_one_that_does_not_even_greet_times_out() -> None:
    async with agent_that(Peer.closed, greets=False, reply_seconds=0.05) as scene:
        with pytest.raises(errors.ProviderTimeout):
            await asyncio.wait_for(scene.machine.processes(), 5)


@pytest.mark.parametrize("cut", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 10])
async def test_closing_in_the_middle_of_a_frame_is_told_as_a_lost_link(cut: int) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        body = process(PROCESS)
        await peer.send((HEADER.pack(len(body), Answer.PROCESS, 0, 0, asked.number) + body)[:cut])

    async with agent_that(script) as scene:
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await asyncio.wait_for(scene.machine.signal(PROCESS, 15), 5)
        assert len(scene.peers) == 1, "a signal must not be sent twice"
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await asyncio.wait_for(scene.machine.process(PROCESS), 5)
        assert len(scene.peers) == 3, "asking for a process may be done again, once"


# Descriptors


def a_directory(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY)


def a_pipe(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def a_file(folder: Path) -> int:
    return os.open(folder / "file", os.O_RDWR | os.O_CREAT)


def a_name_only(folder: Path) -> int:
    os.close(a_file(folder))
    return os.open(folder / "file", os.O_PATH)


def a_file_to_read(folder: Path) -> int:
    os.close(a_file(folder))
    return os.open(folder / "file", os.O_RDONLY)


def a_datagram_socket(folder: Path) -> int:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()


def a_unix_socket(folder: Path) -> int:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours.detach()


def a_lonely_socket(folder: Path) -> int:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()


def a_listening_socket(folder: Path) -> int:
    return socket.create_server(("127.0.0.1", 0)).detach()


def handing(make: Callable[[Path], int], folder: Path, count: int = 1, announced: int = 1) -> Script:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = [make(folder) for _ in range(count)]
        kind, payload = Answer.SOCKET, b""
        if asked.kind is Request.OPEN:
            kind, payload = Answer.OPENED, struct.pack("<I", 1) + entry("/workspace/file")
        try:
            await peer.say(asked, kind, payload, given, announced=announced)
        finally:
            for fd in given:
                os.close(fd)
        await peer.closed()

    return script


FILE_LIES = [a_directory, a_pipe, a_datagram_socket, a_unix_socket, a_name_only]
SOCKET_LIES = [a_directory, a_pipe, a_file, a_datagram_socket, a_unix_socket, a_lonely_socket]


@pytest.mark.parametrize("make", FILE_LIES)
async def test_a_descriptor_that_is_no_file_is_refused(make: Callable[[Path], int], tmp_path: Path) -> None:
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await read(scene.machine)
        await asyncio.wait_for(scene.peers[0].gone.wait(), 5)
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.write_file("/workspace/file", chunks(b"x"))


async def test_a_file_that_cannot_be_written_to_is_refused_for_writing(tmp_path: Path) -> None:
    async with agent_that(handing(a_file_to_read, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.write_file("/workspace/file", chunks(b"x"))


@pytest.mark.parametrize("make", [*SOCKET_LIES, a_listening_socket])
async def test_a_descriptor_that_is_no_connection_is_refused(make: Callable[[Path], int], tmp_path: Path) -> None:
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.dial(8000)
        await asyncio.wait_for(scene.peers[0].gone.wait(), 5)


@pytest.mark.parametrize("make", SOCKET_LIES)
async def test_a_descriptor_that_is_no_listener_is_refused(make: Callable[[Path], int], tmp_path: Path) -> None:
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.listen_socket(8000)


@pytest.mark.parametrize(("count", "announced"), [(1, 0), (40, 1), (250, 1), (2, 2)])
async def test_descriptors_that_were_not_announced_are_closed(tmp_path: Path, count: int, announced: int) -> None:
    async with agent_that(handing(a_file, tmp_path, count, announced)) as scene:
        with pytest.raises(ProtocolError):
            await read(scene.machine)


@pytest.mark.parametrize("count", [2, 4])
async def test_more_descriptors_than_announced_end_the_link_after_the_answer(tmp_path: Path, count: int) -> None:
    async with agent_that(handing(a_file, tmp_path, count)) as scene:
        assert await read(scene.machine) == b""
        await asyncio.wait_for(scene.peers[0].gone.wait(), 5)


async def test_a_descriptor_with_an_answer_that_takes_none_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = a_file(tmp_path)
        await peer.say(asked, Answer.PROCESS, process(PROCESS), [given])
        os.close(given)
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.process(PROCESS)


async def test_a_descriptor_with_an_error_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = a_file(tmp_path)
        await peer.say(asked, Answer.ERROR, refusal(errno.ENOENT), [given])
        os.close(given)
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await read(scene.machine)


async def test_a_descriptor_before_the_rest_of_its_frame_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        body = struct.pack("<I", 1) + entry("/workspace/file")
        frame = HEADER.pack(len(body), Answer.OPENED, 1, 0, asked.number) + body
        given = a_file(tmp_path)
        await peer.send(frame[:1], [given])
        os.close(given)
        for at in range(1, len(frame)):
            await asyncio.sleep(0)
            await peer.send(frame[at : at + 1])
        await peer.closed()

    async with agent_that(script) as scene:
        assert await read(scene.machine) == b"content"


async def test_a_descriptor_half_way_and_then_the_end_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        given = a_file(tmp_path)
        await peer.send(b"\x10", [given])
        os.close(given)

    async with agent_that(script) as scene:
        with pytest.raises(errors.ProviderUnavailable):
            await read(scene.machine)


# Memory


async def test_an_endless_listing_is_cut_off() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        one = entry(b"/workspace/" + b"x" * 60_000)
        while True:
            await peer.say(asked, Answer.ENTRIES, struct.pack("<I", 16) + one * 16)

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                await asyncio.wait_for(scene.machine.list_directory("/workspace"), 30)
            assert tracemalloc.get_traced_memory()[1] < 300 << 20
        finally:
            tracemalloc.stop()


async def test_endless_output_of_a_command_is_not_kept() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        asked = await peer.next()
        await peer.say(asked, Answer.PROCESS, process(PROCESS))
        reading = asyncio.create_task(peer.closed())
        piece = b"x" * 65_536
        while sent < 64 << 20:
            await peer.say(asked, Answer.DATA, data(1, sent, piece))
            sent += len(piece)
        await reading

    async with agent_that(script) as scene:
        tracemalloc.start()
        try:
            await scene.machine.spawn(SPEC)
            while sent < 64 << 20:
                await asyncio.sleep(0.005)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
        assert [asked.kind for asked in scene.peers[0].asked] == [Request.HELLO, Request.SPAWN, Request.CANCEL]


async def test_a_consumer_that_does_not_read_makes_the_flow_stop_and_go_on_later() -> None:
    total = 8 << 20
    content = os.urandom(total)
    follows: list[int] = []

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        while True:
            offset = struct.unpack_from("<QQ", asked.payload, len(asked.payload) - 16)[0]
            follows.append(offset)
            cancelled = asyncio.create_task(peer.until(Request.CANCEL))
            while offset < total and not cancelled.done():
                piece = content[offset : offset + 65_536]
                await peer.say(asked, Answer.DATA, data(1, offset, piece))
                offset += len(piece)
                await asyncio.sleep(0)
            if offset >= total and not cancelled.done():
                await asyncio.sleep(0.05)
            if cancelled.done():
                await peer.say(asked, Answer.ERROR, refusal(errno.ECANCELED))
                asked = await peer.until(Request.FOLLOW)
                continue
            await peer.say(asked, Answer.ENDED, process(PROCESS, 2, 0, stdout=total))
            cancelled.cancel()
            await peer.closed()

    async with agent_that(script) as scene:
        given = b""
        tracemalloc.start()
        try:
            flow = scene.machine.follow(PROCESS)
            given += (await anext(flow)).data
            while len(scene.peers[0].asked) < 3:  # HELLO, FOLLOW, and the CANCEL while nobody reads
                await asyncio.sleep(0.001)
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
        await peer.say(asked, Answer.OK)
        event = b"\x01" + text("/workspace/a")
        frame = HEADER.pack(len(event), Answer.EVENT, 0, 0, asked.number) + event
        for _ in range(30):
            await peer.send(frame * 1000)
        await peer.say(await peer.next(), Answer.PROCESS, process(PROCESS))
        told.set()
        await peer.closed()

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        await scene.machine.process(PROCESS)
        await told.wait()
        seen = [(await anext(events)).path for _ in range(10_001)]
        assert set(seen[:-1]) == {"/workspace/a"}
        assert seen[-1] == "/workspace"


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
