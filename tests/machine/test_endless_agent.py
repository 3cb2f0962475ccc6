"""A hostile agent that sends tiny frames without end, over each of the ways to it: the loop has time for others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
import socket
import threading
from collections.abc import Awaitable, Callable

import pytest

from paddock.api.shapes import chunk_answer
from paddock.api.sse import ServerSentEvent
from paddock.machine.agent.bridge import AgentBridge, BridgeEndpoint
from paddock.machine.agent.multiplexer import ChannelKind, Multiplexer
from paddock.machine.agent.wire import ReplyKind, RequestKind
from tests.machine.peer import HEADER, PROCESS, Peer, agent_that, data, process
from tests.support.stalls import free_own_loop
from tests.support.waiting import PATIENCE_S, until

FRAMES = {"empty messages": b"\x82\x00", "pings": b"\x89\x00", "pongs": b"\x8a\x00"}
FLOOD_BYTES = 1 << 19
CHUNKS = 10_000
"""As many as are held of one process at a time."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def flooding(end: socket.socket, frame: bytes) -> None:
    """The bridge inside, in a thread: opens the way, says this very often, then one thing more, and closes."""
    with end:
        head = b""
        while b"\r\n\r\n" not in head:
            head += end.recv(1 << 16)
        found = re.search(rb"(?i)sec-websocket-key: *(\S+)", head)
        assert found is not None
        accept = base64.b64encode(hashlib.sha1(found[1] + _GUID).digest())
        end.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        end.sendall(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x04open")
        reading = threading.Thread(target=_read_away, args=(end,))
        reading.start()
        end.sendall(frame * (FLOOD_BYTES // len(frame)) + b"\x82\x04last\x88\x02\x03\xe8")
        reading.join()


def _read_away(end: socket.socket) -> None:
    while end.recv(1 << 20):
        pass


@pytest.mark.parametrize("kind", FRAMES)
async def test_frames_of_a_bridge_leave_the_loop_to_others_and_all_arrive(kind: str) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    inside = threading.Thread(target=flooding, args=(theirs, FRAMES[kind]))
    inside.start()

    async def connect() -> socket.socket:
        return ours

    async def endpoint() -> BridgeEndpoint:
        return BridgeEndpoint("ws://agent", {}, connect)

    bridge = AgentBridge(endpoint)
    async with free_own_loop(), asyncio.timeout(PATIENCE_S):
        with await bridge.link() as link:
            assert await asyncio.get_running_loop().sock_recv(link, 100) == b"last"
        await bridge.close()
        await asyncio.to_thread(inside.join)


class ReadyPipe:
    """What it reads is there already, as from a buffer that is filled as fast as it is read."""

    def __init__(self, pieces: Callable[[], bytes]) -> None:
        self._pieces = pieces

    async def read(self) -> bytes:
        return self._pieces()

    async def write(self, data: bytes) -> None:
        """Into nothing."""

    async def close(self) -> None:
        """Nothing is open."""


async def test_frames_of_a_trunk_leave_the_loop_to_others() -> None:
    nothing_more = b"\x00\x00" + bytes([ChannelKind.WINDOW, 0]) + (4).to_bytes(4, "little") + bytes(4)
    hello = b"\x00\x00" + bytes([ChannelKind.HELLO, 0]) + (4).to_bytes(4, "little") + (1).to_bytes(4, "little")
    pieces = itertools.chain([hello], itertools.repeat(nothing_more * 1_000, 500))
    multiplexer = Multiplexer(ReadyPipe(lambda: next(pieces, b"")))
    await multiplexer.start()
    with await multiplexer.connect():  # as number 0, which all of them are about
        async with free_own_loop():
            await until(lambda: not multiplexer.alive)
    await multiplexer.close()


def in_tiny_chunks(number: int, count: int) -> bytes:
    """Output of one byte each, with gaps between, so that none can be joined to the next."""
    payloads = [data(1, 2 * at, b"x") for at in range(count)]
    return b"".join(HEADER.pack(len(payload), ReplyKind.DATA, 0, 0, number) + payload for payload in payloads)


async def test_output_in_tiny_chunks_leaves_the_loop_to_others_and_all_arrives() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await asyncio.to_thread(_send_all, peer, in_tiny_chunks(asked.number, CHUNKS))
        await peer.say(await peer.until(RequestKind.PROCESS_GET), ReplyKind.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script) as scene, asyncio.timeout(PATIENCE_S):
        output = aiter(scene.machine.follow(PROCESS))
        first = await anext(output)
        await scene.machine.process(PROCESS)  # answered behind all of it, so that it waits here
        taken = [first]
        async with free_own_loop(0.04):
            for _ in range(CHUNKS - 1):
                taken.append(await anext(output))
                ServerSentEvent("output", chunk_answer(taken[-1])).encode()  # what is made of it for a client
        await _close(output)
    assert [chunk.offset for chunk in taken] == [2 * number for number in range(CHUNKS)]


async def test_no_more_tiny_chunks_are_held_than_there_is_memory_for() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.next()
        await asyncio.to_thread(_send_all, peer, in_tiny_chunks(asked.number, 2 * CHUNKS))
        await peer.until(RequestKind.CANCEL)
        cancelled.set()
        await peer.closed()

    cancelled = asyncio.Event()
    async with agent_that(script) as scene, asyncio.timeout(PATIENCE_S):
        output = aiter(scene.machine.follow(PROCESS))
        await anext(output)
        await cancelled.wait()
        await _close(output)


def _send_all(peer: Peer, content: bytes) -> None:
    end = peer.end.dup()
    end.setblocking(True)
    with end:
        end.sendall(content)


async def _close(output: object) -> None:
    closing: Callable[[], Awaitable[None]] = output.aclose  # type: ignore[attr-defined]
    await closing()
