"""What a sandbox connects to in these tests: servers on the loopback, found by names that a table resolves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from paddock import errors
from paddock.egress.addresses import PrivateAccess
from paddock.egress.gate import EgressGate
from paddock.egress.policy import EgressPolicy
from paddock.egress.proxy import EgressProxy
from paddock.egress.records import EgressLedger, EgressRecord
from paddock.egress.traffic import Limits
from tests.support.waiting import PATIENCE_S, until

LOOPBACK = ("127.0.0.0/8", "::1/128")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Names:
    """A resolver that answers from a table, each question with the next of its answers, and remembers the questions."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.table: dict[str, list[Sequence[str]]] = {name: list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    def say(self, name: str, *answers: Sequence[str]) -> None:
        self.table[name] = list(answers)

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answers = self.table.get(name)
        if not answers:
            raise errors.NotFound(f"There is no host {name}.")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Talk:
    """A client's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await self.writer.drain()

    async def head(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def ask(self, data: bytes) -> tuple[str, bytes]:
        """Send a request and read one response that has a Content-Length."""
        await self.send(data)
        head = await self.head()
        sizes = [line.partition(":")[2] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        return head, await self.read(int(sizes[0]) if sizes else 0)

    def end(self) -> None:
        self.writer.write_eof()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return  # the other side was first


@dataclass
class Server:
    port: int
    accepted: list[bytes] = field(default_factory=list)


@dataclass
class Sandbox:
    """The proxy of a sandbox, and the way to it."""

    proxy: EgressProxy
    gate: EgressGate
    names: Names
    port: int
    records: list[EgressRecord]
    talks: list[Talk] = field(default_factory=list)

    async def dial(self) -> Talk:
        talk = Talk(*await asyncio.open_connection("127.0.0.1", self.port))
        self.talks.append(talk)
        return talk

    async def connect(self, authority: str) -> tuple[str, Talk]:
        talk = await self.dial()
        await talk.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        return await talk.head(), talk

    async def tunnel(self, authority: str) -> Talk:
        head, talk = await self.connect(authority)
        assert head.startswith("HTTP/1.1 200 "), head
        return talk

    async def recorded(self, count: int) -> list[EgressRecord]:
        await until(lambda: len(self.records) >= count)
        assert len(self.records) == count, self.records
        return self.records

    async def close(self) -> None:
        await self.proxy.close()
        for talk in self.talks:
            await talk.close()


def make_sandbox(
    policy: EgressPolicy | None = None,
    *,
    listener: socket.socket | None = None,
    limits: Limits | None = None,
    reach: PrivateAccess | None = None,
    reachable: Sequence[str] = LOOPBACK,
) -> Sandbox:
    listener = listener or socket.create_server(("127.0.0.1", 0))
    names = Names()
    names.say("site.test", ["127.0.0.1"])
    records: list[EgressRecord] = []
    gate = EgressGate(
        policy or EgressPolicy(),
        reach=reach or PrivateAccess(reachable=reachable),
        resolve=names,
        ledger=EgressLedger(on_record=records.append),
    )
    proxy = EgressProxy(listener, gate, limits)
    port = int(listener.getsockname()[1])
    proxy.start()
    return Sandbox(proxy, gate, names, port, records)
