"""The internet of these tests: names and addresses that all lead to one small web server on the host's loopback.

Whatever the egress dials is written down, and nothing but that server is ever reached.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence

import pytest

from paddock import errors
from paddock.egress import dial as dialling
from paddock.egress import resolve
from paddock.http1.hosts import Address

LISTENING = "127.0.0.9"
NAMES = {
    "open.test": ["198.51.100.7"],
    "other.test": ["198.51.100.8"],
    "six.test": ["2001:db8::7"],
    "both.test": ["2001:db8::7", "198.51.100.7"],
}
REACHABLE = ("198.51.100.0/24", "2001:db8::/32")
"""Documentation addresses count as private; an operator would open them so."""


class Outside:
    def __init__(self) -> None:
        self.names: dict[str, list[str]] = dict(NAMES)
        self.dialled: list[tuple[str, int]] = []
        self.port = 0

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, LISTENING, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dialling, "_connect", self._connect)
        monkeypatch.setattr(resolve, "look_up", self._look_up)

    async def _connect(self, address: Address, port: int) -> tuple[Address, socket.socket]:
        self.dialled.append((str(address), port))
        if str(address) not in {one for answers in NAMES.values() for one in answers}:
            raise OSError(errno.ENETUNREACH, "not part of these tests")
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (LISTENING, self.port))
        except BaseException:
            sock.close()
            raise
        return address, sock

    def _look_up(self, name: str) -> Sequence[str]:
        if (found := self.names.get(name.rstrip(".").lower())) is None:
            raise errors.NotFound(f"There is no host {name}.")
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        path = head.split(b" ")[1]
        if path.endswith(b"/hold"):  # an answer that goes on until it is cut
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nheld\n")
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()


def fetch(url: str) -> str:
    """A script that prints what is there; it goes by the proxy where the environment names one."""
    return f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\", timeout=60).read().decode())'"


def connect(host: str, port: int) -> str:
    """A script that asks for ``/`` over a socket of its own, and knows nothing of proxies."""
    code = (
        f'import socket; s = socket.create_connection(("{host}", {port}), 10); '
        's.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"); print(s.makefile().read().rpartition("\\n")[2])'
    )
    return f"python3 -c '{code}'"
