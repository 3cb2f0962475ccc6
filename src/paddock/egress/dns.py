"""The name server of a sandbox with full egress: resolves on the host, and only names that the policy allows.

It never returns an unreachable address, and remembers which names it returned each address for. Of DNS messages it
knows the part of RFC 1035 that a relay needs which answers only address queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Any

from paddock import errors
from paddock.egress.acceptor import Acceptor
from paddock.egress.gate import EgressGate
from paddock.egress.traffic import Limits
from paddock.http1.hosts import Address, parse_host
from paddock.http1.stream_socket import StreamSocket

_MAX_DATAGRAM_BYTES = 4096
_MAX_DATAGRAMS_PER_CALL = 32
_MAX_STREAMS = 32
_STREAM_TIMEOUT_S = 10.0
PORT = 53
A, AAAA, SVCB, HTTPS = 1, 28, 64, 65
INTERNET = 1
TTL = 30
MOST_ANSWERS = 16
"""Fits a datagram of 512 bytes, whatever the name."""

_HEADER = struct.Struct("!HHHHHH")
_IS_ANSWER, _OPCODE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080


class DnsRelay:
    """Serves UDP sockets and TCP listeners created in the sandbox's network namespace; the relay owns them."""

    def __init__(
        self,
        datagrams: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        gate: EgressGate,
        limits: Limits | None = None,
    ) -> None:
        self._datagrams = list(datagrams)
        self._gate = gate
        self._limits = limits or Limits()
        self._acceptors = [Acceptor(one, self._serve_stream, _MAX_STREAMS) for one in listeners]
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._datagrams:
            sock.setblocking(False)
            loop.add_reader(sock, self._receive, sock)
        for acceptor in self._acceptors:
            acceptor.start()

    async def close(self) -> None:
        for sock in self._datagrams:
            asyncio.get_running_loop().remove_reader(sock)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(one.close() for one in self._acceptors), return_exceptions=True)
        for sock in self._datagrams:
            sock.close()

    async def answer(self, data: bytes) -> bytes | None:
        """The response, or None to send none."""
        question = read_question(data)
        if question is None:
            return None
        if not question.is_plain:
            return write_answer(question, DnsCode.NOT_IMPLEMENTED)
        try:
            name = parse_host(question.name) if question.name else None
        except errors.MalformedRequest:
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        if not isinstance(name, str):
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        return await self._answer(question, name)

    async def _answer(self, question: Question, name: str) -> bytes:
        if question.kind not in (A, AAAA, SVCB, HTTPS):
            return write_answer(question, DnsCode.NOT_IMPLEMENTED)
        try:
            addresses = await self._gate.addresses(name, None)
        except errors.Forbidden as trouble:
            # NXDOMAIN rather than REFUSED, after which clients would try other name servers.
            if question.kind != AAAA:  # clients that connect query both types: count that as one attempt
                self._gate.refused(self._gate.ledger.begin(name, PORT), trouble)
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        except errors.NotFound:
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        except errors.PaddockError:
            return write_answer(question, DnsCode.FAILED)
        # An empty response to SVCB and HTTPS is valid: it means that there is no service binding.
        wanted = [one for one in addresses if question.kind == (A if isinstance(one, IPv4Address) else AAAA)]
        self._gate.learned.learn(name, wanted)
        return write_answer(question, DnsCode.OK, wanted)

    def _receive(self, sock: socket.socket) -> None:
        for _ in range(_MAX_DATAGRAMS_PER_CALL):
            try:
                data, sender = sock.recvfrom(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # the error of an earlier response: its port is closed
            if len(self._tasks) < self._limits.lookups:
                task = asyncio.create_task(self._answer_datagram(sock, data, sender))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer_datagram(self, sock: socket.socket, data: bytes, sender: Any) -> None:
        said = await self.answer(data)
        if said is not None:
            # A datagram may be lost; a full buffer or a closed sender is no different.
            with contextlib.suppress(OSError):
                sock.sendto(said, sender)

    async def _serve_stream(self, client: StreamSocket) -> None:
        """RFC 7766: any number of queries, each prefixed by its length."""
        with contextlib.suppress(OSError):  # disconnected, or idle for too long
            while True:
                async with asyncio.timeout(_STREAM_TIMEOUT_S):
                    data = await _framed(client)
                    said = await self.answer(data) if data is not None else None
                    if said is None:
                        return
                    await client.send(struct.pack("!H", len(said)) + said)


async def _framed(client: StreamSocket) -> bytes | None:
    while True:
        if len(client.ahead) >= 2:
            size = int.from_bytes(client.ahead[:2], "big")
            if len(client.ahead) >= 2 + size:
                data = bytes(client.ahead[2 : 2 + size])
                del client.ahead[: 2 + size]
                return data
        if not await client.fill():
            return None


class DnsCode(IntEnum):
    OK = 0
    MALFORMED = 1
    FAILED = 2
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Question:
    id: int
    flags: int
    name: str
    """As queried, without the trailing dot. Not validated."""
    kind: int
    net: int
    raw: bytes

    @property
    def is_plain(self) -> bool:
        return self.flags & _OPCODE == 0 and self.net == INTERNET


def read_question(data: bytes) -> Question | None:
    """None for data that is not a query and gets no response."""
    if len(data) < _HEADER.size:
        return None
    number, flags, questions, _, _, _ = _HEADER.unpack_from(data)
    if flags & _IS_ANSWER or questions != 1:
        return None
    labels: list[str] = []
    at = _HEADER.size
    try:
        while size := data[at]:
            # Nothing precedes the question, so a compression pointer (0xC0) is invalid here.
            if size > 63 or len(labels) > 127:
                return None
            labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
        kind, net = struct.unpack_from("!HH", data, at + 1)
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    return Question(number, flags, ".".join(labels), kind, net, data[_HEADER.size : at + 5])


def write_answer(question: Question, code: DnsCode, addresses: Sequence[Address] = ()) -> bytes:
    flags = _IS_ANSWER | _RECURSION_AVAILABLE | (question.flags & (_OPCODE | _RECURSION_DESIRED)) | code
    given = addresses[:MOST_ANSWERS]
    head = _HEADER.pack(question.id, flags, 1, len(given), 0, 0)
    return head + question.raw + b"".join(_record(address) for address in given)


def _record(address: Address) -> bytes:
    kind = A if isinstance(address, IPv4Address) else AAAA
    data = address.packed
    # 0xC00C points to the name in the question.
    return struct.pack("!HHHIH", 0xC00C, kind, INTERNET, TTL, len(data)) + data
