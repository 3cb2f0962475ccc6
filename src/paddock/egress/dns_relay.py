"""The name server of a sandbox with full egress: resolves on the host, and knows only names that the policy allows.

It never tells an address that is out of reach, and remembers which names it gave which addresses for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from paddock import errors
from paddock.egress.acceptor import Acceptor
from paddock.egress.dns import AAAA, HTTPS, SVCB, A, DnsCode, Question, read_question, write_answer
from paddock.egress.gate import EgressGate
from paddock.egress.limits import Limits
from paddock.http1.hosts import parse_host
from paddock.http1.stream_socket import StreamSocket

_DATAGRAM = 4096
_BURST = 32
_STREAMS = 32
_STREAM_SECONDS = 10.0
PORT = 53


class DnsRelay:
    """Serves UDP sockets and TCP listeners, each made in the sandbox's network namespace and ours from now on."""

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
        self._acceptors = [Acceptor(one, self._serve_stream, _STREAMS) for one in listeners]
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
        """None: say nothing."""
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
            # NXDOMAIN rather than REFUSED, after which clients go on to ask whomever else they know.
            if question.kind != AAAA:  # who wants to connect asks for both: that is one attempt
                self._gate.refused(self._gate.ledger.begin(name, PORT), trouble)
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        except errors.NotFound:
            return write_answer(question, DnsCode.NO_SUCH_NAME)
        except errors.PaddockError:
            return write_answer(question, DnsCode.FAILED)
        # "None" is a true answer to SVCB and HTTPS: it only means that there is no short cut.
        wanted = [one for one in addresses if question.kind == (A if isinstance(one, IPv4Address) else AAAA)]
        self._gate.learned.learn(name, wanted)
        return write_answer(question, DnsCode.OK, wanted)

    def _receive(self, sock: socket.socket) -> None:
        for _ in range(_BURST):
            try:
                data, sender = sock.recvfrom(_DATAGRAM)
            except BlockingIOError:
                return
            except OSError:
                continue  # what befell an earlier answer of ours: nobody listens there any more
            if len(self._tasks) < self._limits.lookups:
                task = asyncio.create_task(self._answer_datagram(sock, data, sender))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer_datagram(self, sock: socket.socket, data: bytes, sender: Any) -> None:
        said = await self.answer(data)
        if said is not None:
            # A datagram may be lost; a full buffer or a sender that has gone is no different.
            with contextlib.suppress(OSError):
                sock.sendto(said, sender)

    async def _serve_stream(self, client: StreamSocket) -> None:
        """RFC 7766: any number of questions, each after its length."""
        with contextlib.suppress(OSError):  # gone, or silent for too long
            while True:
                async with asyncio.timeout(_STREAM_SECONDS):
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
