"""The other end of a machine's link, in the hands of a test: it can say anything, also what no agent would."""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paddock.machine.agent import AgentMachine
from paddock.machine.agent.wire import ReplyKind, RequestKind
from paddock.machine.base import ProcessSpec
from tests.support.waiting import until

HEADER = struct.Struct("<IBBHI")
MICROSECONDS = 1_700_000_000_000_000

PROCESS = "p_0000000000000001"
SPEC = ProcessSpec(PROCESS, ["true"])


@dataclass(frozen=True)
class Asked:
    kind: RequestKind
    number: int
    payload: bytes

    @property
    def first_text(self) -> bytes:
        size = int.from_bytes(self.payload[:4], "little")
        return self.payload[4 : 4 + size]


class Peer:
    """One accepted connection."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self.asked: list[Asked] = []
        self.gone = asyncio.Event()
        """Its script is over: the machine has closed the link, or it has."""
        self._buffer = b""

    async def next(self) -> Asked:
        """The next request; EOFError when the machine has closed."""
        loop = asyncio.get_running_loop()
        while True:
            if len(self._buffer) >= HEADER.size:
                length, kind, _, _, number = HEADER.unpack_from(self._buffer)
                end = HEADER.size + length
                if len(self._buffer) >= end:
                    asked = Asked(RequestKind(kind), number, self._buffer[HEADER.size : end])
                    self._buffer = self._buffer[end:]
                    self.asked.append(asked)
                    return asked
            try:
                data = await loop.sock_recv(self.end, 1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._buffer += data

    async def until(self, kind: RequestKind) -> Asked:
        while (asked := await self.next()).kind is not kind:
            pass
        return asked

    async def closed(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                await self.next()

    async def say(
        self, to: Asked | int, kind: ReplyKind | int, payload: bytes = b"", fds: list[int] | None = None, **header: int
    ) -> None:
        number = to if isinstance(to, int) else to.number
        announced = header.get("announced", len(fds or ()))
        head = HEADER.pack(header.get("length", len(payload)), kind, announced, header.get("reserved", 0), number)
        await self.send(head + payload, fds)

    async def send(self, data: bytes, fds: list[int] | None = None) -> None:
        if fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
            sent = self.end.sendmsg([data], [rights])
            data = data[sent:]
        await asyncio.get_running_loop().sock_sendall(self.end, data)


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Scene:
    machine: AgentMachine
    peers: list[Peer] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)


@asynccontextmanager
async def agent_that(*scripts: Script, greets: bool = True, reply_seconds: float = 5.0) -> AsyncIterator[Scene]:
    """A machine whose agent plays these scripts, one for each connection, the last one also for all further ones."""
    tasks: list[asyncio.Task[None]] = []
    scene: Scene

    async def play(peer: Peer, script: Script) -> None:
        try:
            if greets:
                await peer.say(await peer.next(), ReplyKind.HELLO_OK, hello())
            await script(peer)
        except (EOFError, ConnectionError):
            pass
        except Exception as error:
            scene.failures.append(error)
        finally:
            peer.end.close()
            peer.gone.set()

    async def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        peer = Peer(theirs)
        script = scripts[min(len(scene.peers), len(scripts) - 1)]
        scene.peers.append(peer)
        tasks.append(asyncio.create_task(play(peer, script)))
        return ours

    scene = Scene(AgentMachine("tester_00000000", connect, dict, reply_seconds=reply_seconds))
    try:
        yield scene
        assert scene.failures == []
    finally:
        await scene.machine.aclose()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def kinds(scene: Scene, connection: int = 0) -> list[RequestKind]:
    return [asked.kind for peer in scene.peers[connection : connection + 1] for asked in peer.asked[1:]]


async def settled(scene: Scene, *expected: RequestKind) -> None:
    """Until the agent has got just these, after the greeting."""
    await until(lambda: kinds(scene) == list(expected))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read_all(machine: AgentMachine, path: str = "/workspace/file") -> bytes:
    return b"".join([piece async for piece in machine.read_file(path)])


async def follow_all(machine: AgentMachine) -> list[bytes]:
    return [chunk.data async for chunk in machine.follow(PROCESS)]


# Payloads


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def hello(version: int = 1, features: int = 1) -> bytes:
    return struct.pack("<II", version, features) + text("test")


def process(
    process_id: bytes | str, status: int = 1, code: int = -1, stdout: int = 0, stderr: int = 0, label: bytes = b""
) -> bytes:
    ended = 0 if status == 1 else MICROSECONDS + 1
    times = struct.pack("<QQQQB", MICROSECONDS, ended, stdout, stderr, 0)
    return text(process_id) + struct.pack("<Bii", status, code, 7) + text(label) + times


def data(stream: int, offset: int, content: bytes) -> bytes:
    return struct.pack("<BQ", stream, offset) + text(content)


def entry(path: bytes | str, kind: int = 1, size: int = 0, mode: int = 0o644, target: bytes = b"") -> bytes:
    head = text(path) + struct.pack("<BQIII", kind, size, mode, 1000, 1000)
    return head + text("user") + text("user") + struct.pack("<Q", MICROSECONDS) + text(target)


def refusal(number: int, message: str = "no") -> bytes:
    return struct.pack("<i", number) + text(message)


async def answer_all(peer: Peer) -> None:
    while True:
        asked = await peer.next()
        await peer.say(asked, *plain_answer(asked))


def plain_answer(asked: Asked) -> tuple[ReplyKind, bytes]:
    match asked.kind:
        case RequestKind.SPAWN | RequestKind.PROCESS_GET:
            return ReplyKind.PROCESS, process(asked.first_text)
        case RequestKind.WAIT:
            return ReplyKind.ENDED, process(asked.first_text, 2, 0)
        case RequestKind.PROCESSES:
            return ReplyKind.PROCESS_LIST, bytes(4)
        case _:
            return ReplyKind.OK, b""
