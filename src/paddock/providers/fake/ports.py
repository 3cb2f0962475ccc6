"""Connections to ports inside a sandbox: a real socket from its network namespace, no host port taken."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from paddock import errors
from paddock.machine.threads import in_thread
from paddock.providers.fake.namespaces import Holding, Namespaces

_DIALER = Path(__file__).with_name("dialer.py")
_REFUSED = 7
_SECONDS = 10.0


class PortConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, limit: int = 65536) -> bytes:
        try:
            return await self._reader.read(limit)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError as error:
            raise errors.Conflict("The other end inside the sandbox has closed the connection.") from error

    async def end_write(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def dial(namespaces: Namespaces, port: int) -> PortConnection:
    if not 0 < port < 1 << 16:
        raise errors.Invalid(f"{port} is not the number of a port.")
    # With no command ever started there are no namespaces, and nobody who could listen.
    holding = await in_thread(namespaces.current)
    connected = await in_thread(_connect, holding, port) if holding else None
    if connected is None:
        raise errors.Conflict(f"Nothing listens on port {port} in the sandbox.", details={"port": port})
    try:
        return PortConnection(*await asyncio.open_connection(sock=connected))
    except BaseException:
        connected.close()
        raise


def _connect(holding: Holding, port: int) -> socket.socket | None:
    """The user namespace is entered first: owning it is what gives an ordinary user the right to the network's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        enter = ["nsenter", "--preserve-credentials", f"--user={holding.user_namespace}"]
        enter += [f"--net=/proc/{holding.init}/ns/net", "--"]
        command = [*enter, sys.executable, "-I", "-S", str(_DIALER), str(theirs.fileno()), str(port)]
        try:
            done = subprocess.run(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise errors.ProviderUnavailable(f"Port {port} of the sandbox could not be reached: {error}") from error
        if done.returncode == _REFUSED:
            return None
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()[-300:]
            raise errors.ProviderUnavailable(f"Port {port} of the sandbox could not be reached: {reason}")
        descriptors = socket.recv_fds(ours, 1, 1)[1]
        return socket.socket(fileno=descriptors[0])
