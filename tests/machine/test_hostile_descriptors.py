"""Descriptors that an agent should not have sent: refused, and closed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent.wire import ProtocolError, ReplyKind, RequestKind
from tests.machine.peer import HEADER, PROCESS, Peer, Script, agent_that, chunks, entry, process, read_all, refusal
from tests.support.waiting import PATIENCE_S


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
        kind, payload = ReplyKind.SOCKET, b""
        if asked.kind is RequestKind.OPEN:
            kind, payload = ReplyKind.OPENED, struct.pack("<I", 1) + entry("/workspace/file")
        try:
            await peer.say(asked, kind, payload, given, announced=announced)
        finally:
            for fd in given:
                os.close(fd)
        await peer.closed()

    return script


FILE_LIES = [a_directory, a_pipe, a_datagram_socket, a_unix_socket, a_name_only]
SOCKET_LIES = [a_directory, a_pipe, a_file, a_datagram_socket, a_unix_socket]


@pytest.mark.parametrize("make", FILE_LIES)
async def test_a_descriptor_that_is_no_file_is_refused(make: Callable[[Path], int], tmp_path: Path) -> None:
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await read_all(scene.machine)
        await asyncio.wait_for(scene.peers[0].gone.wait(), PATIENCE_S)
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
        await asyncio.wait_for(scene.peers[0].gone.wait(), PATIENCE_S)


async def test_a_connection_that_is_over_already_is_a_closed_port(tmp_path: Path) -> None:
    """What listened may end between the agent's connect and our look: nobody has lied then."""
    async with agent_that(handing(a_lonely_socket, tmp_path)) as scene:
        with pytest.raises(errors.Conflict, match="Nothing listens on port 8000"):
            await scene.machine.dial(8000)
        assert not scene.peers[0].gone.is_set()


@pytest.mark.parametrize("make", [*SOCKET_LIES, a_lonely_socket])
async def test_a_descriptor_that_is_no_listener_is_refused(make: Callable[[Path], int], tmp_path: Path) -> None:
    async with agent_that(handing(make, tmp_path)) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.listen_socket(8000)


@pytest.mark.parametrize(("count", "announced"), [(1, 0), (40, 1), (250, 1), (2, 2)])
async def test_descriptors_that_were_not_announced_are_closed(tmp_path: Path, count: int, announced: int) -> None:
    async with agent_that(handing(a_file, tmp_path, count, announced)) as scene:
        with pytest.raises(ProtocolError):
            await read_all(scene.machine)


@pytest.mark.parametrize("count", [2, 4])
async def test_more_descriptors_than_announced_end_the_link_after_the_answer(tmp_path: Path, count: int) -> None:
    async with agent_that(handing(a_file, tmp_path, count)) as scene:
        assert await read_all(scene.machine) == b""
        await asyncio.wait_for(scene.peers[0].gone.wait(), PATIENCE_S)


async def test_a_descriptor_with_an_answer_that_takes_none_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = a_file(tmp_path)
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS), [given])
        os.close(given)
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await scene.machine.process(PROCESS)


async def test_a_descriptor_with_an_error_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        given = a_file(tmp_path)
        await peer.say(asked, ReplyKind.ERROR, refusal(errno.ENOENT), [given])
        os.close(given)
        await peer.closed()

    async with agent_that(script) as scene:
        with pytest.raises(ProtocolError):
            await read_all(scene.machine)


async def test_a_descriptor_before_the_rest_of_its_frame_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")

    async def script(peer: Peer) -> None:
        asked = await peer.next()
        body = struct.pack("<I", 1) + entry("/workspace/file")
        frame = HEADER.pack(len(body), ReplyKind.OPENED, 1, 0, asked.number) + body
        given = a_file(tmp_path)
        await peer.send(frame[:1], [given])
        os.close(given)
        for at in range(1, len(frame)):
            await asyncio.sleep(0)
            await peer.send(frame[at : at + 1])
        await peer.closed()

    async with agent_that(script) as scene:
        assert await read_all(scene.machine) == b"content"


async def test_a_descriptor_half_way_and_then_the_end_is_closed(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        given = a_file(tmp_path)
        await peer.send(b"\x10", [given])
        os.close(given)

    async with agent_that(script) as scene:
        with pytest.raises(errors.ProviderUnavailable):
            await read_all(scene.machine)
