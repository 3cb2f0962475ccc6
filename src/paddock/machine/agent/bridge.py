"""Transport to an agent over a network: WebSockets to the agent's bridge, each presented as one end of a socket pair.

Code that talks to the agent, or to a port, therefore need not know that it is remote. Half-close is carried by the
message ``end``, and back-pressure is kept, because nothing is read beyond what the other end consumes.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from paddock import errors
from paddock.loop_turns import give_turn
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.wire import ProtocolError
from paddock.paced_transport import PacedTransport

TOKEN_HEADER = "X-Paddock-Token"  # noqa: S105 - the header's name, not a token
_PREFIX = "/paddock/v1"
_READ_BYTES = 64 * 1024
_MAX_MESSAGE_BYTES = 1 << 20
_MAX_BUFFERED_MESSAGES = 4
"""Messages buffered before they are consumed."""
_OPEN_TIMEOUT_S = 30.0
_CLOSE_SECONDS = 5.0
_PING_SECONDS = 20.0
_PONG_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 1.0
_MAX_ERRNO = 4095


@dataclass(frozen=True, slots=True)
class BridgeEndpoint:
    """Address of the bridge, ``ws://`` or ``wss://``, and the headers that the proxies in front of it require."""

    url: str
    headers: Mapping[str, str]
    connect: Callable[[], Awaitable[socket.socket]] | None = None
    """For a bridge that is not reachable by address: returns a connected stream socket, owned by the bridge from then
    on."""


class BridgeRefused(errors.ProviderUnavailable):
    """The connection was refused: there is no bridge, the token is wrong, or a proxy does not know the machine."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.http_status = status


class AgentBridge:
    def __init__(self, endpoint: Callable[[], Awaitable[BridgeEndpoint]]) -> None:
        self._endpoint = endpoint
        self._relays: dict[asyncio.Task[None], ClientConnection] = {}

    async def link(self) -> socket.socket:
        """A new connection to the agent, for protocol frames."""
        return self._relayed(await self._open("/link", _OPEN_TIMEOUT_S))

    async def dial(self, port: int) -> socket.socket:
        """A connection to a port inside. Raises :class:`AgentRefusal` if nothing listens there."""
        return self._relayed(await self._open(f"/dial/{port}", _OPEN_TIMEOUT_S))

    async def accept(self, port: int, kind: int, waits: Callable[[], None] = lambda: None) -> ClientConnection:
        """The next connection made inside the sandbox to this port, whenever that is. Pass it to ``serve``.

        ``waits`` is called when the agent reports that it is listening.
        """
        return await self._open(f"/accept/{port}/{kind}", None, waits)

    def serve(self, channel: ClientConnection, end: socket.socket) -> None:
        """Relay bytes between an opened channel and this socket, which the bridge owns from now on."""
        task = asyncio.create_task(_Relay(channel, end).run())
        self._relays[task] = channel
        task.add_done_callback(self._relays.pop)

    async def cut(self) -> None:
        """Abort all channels without a closing handshake, as a frozen agent would not answer one."""
        for channel in self._relays.values():
            channel.transport.abort()
        await self.close()

    async def close(self) -> None:
        for task in list(self._relays):
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _relayed(self, channel: ClientConnection) -> socket.socket:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        self.serve(channel, theirs)
        return ours

    async def _open(
        self, path: str, patience: float | None, waits: Callable[[], None] | None = None
    ) -> ClientConnection:
        """Connect and wait until the agent reports the channel as open."""
        channel = await self._connect(path)
        try:
            async with asyncio.timeout(patience):
                word = await channel.recv()
                if word == "waiting" and waits is not None:
                    waits()
                    word = await channel.recv()
                _check_open(word)
        except (ConnectionClosed, TimeoutError) as error:
            await _hang_up(channel)
            raise BridgeRefused("The sandbox's agent did not open the connection.") from error
        except BaseException:
            await asyncio.shield(_hang_up(channel))
            raise
        return channel

    async def _connect(self, path: str) -> ClientConnection:
        endpoint = await self._endpoint()
        try:
            return await connect(
                endpoint.url.rstrip("/") + _PREFIX + path,
                additional_headers=dict(endpoint.headers),
                user_agent_header=None,
                compression=None,
                open_timeout=_OPEN_TIMEOUT_S,
                close_timeout=_CLOSE_SECONDS,
                # On this host the kernel reports a closed connection, and a frozen peer must not count as gone.
                ping_interval=None if endpoint.connect is not None else _PING_SECONDS,
                ping_timeout=_PONG_TIMEOUT_S,
                max_size=_MAX_MESSAGE_BYTES,
                max_queue=_MAX_BUFFERED_MESSAGES,
                create_connection=_Channel,
                **await _connect_options(endpoint),
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise BridgeRefused(
                f"The connection to the sandbox's agent was refused (HTTP {status}).", status
            ) from error
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise BridgeRefused(f"The sandbox's agent cannot be reached: {error or 'no answer'}.") from error


class _Channel(ClientConnection):
    """Reads in slices: an agent may send very many empty frames."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._paced = PacedTransport(cast(asyncio.Transport, transport), super().data_received)
        super().connection_made(cast(asyncio.Transport, self._paced))

    def data_received(self, data: bytes) -> None:
        self._paced.receive(data)


class _Relay:
    """One channel and one socket, until both directions have ended or either end is gone."""

    def __init__(self, channel: ClientConnection, end: socket.socket) -> None:
        self._channel = channel
        self._end = end
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        inward, outward = asyncio.create_task(self._inward()), asyncio.create_task(self._outward())
        left: set[asyncio.Task[bool]] = {inward, outward}
        try:
            while not (inward.done() and outward.done()):
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                if not all(task.result() for task in done):
                    return
                # After one direction has ended nothing reads it any more, so the end of the connection has to be
                # watched for.
                left.add(asyncio.create_task(self._near_end_gone() if inward in done else self._far_end_gone()))
        finally:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self._end.close()
            await asyncio.shield(_hang_up(self._channel))

    async def _inward(self) -> bool:
        """True if this direction ended in order, so that the other may continue."""
        with suppress(OSError, ConnectionClosed):
            while data := await self._loop.sock_recv(self._end, _READ_BYTES):
                await self._channel.send(data)
            if not self._gone():
                await self._channel.send("end")
                return True
        return False

    async def _outward(self) -> bool:
        with suppress(OSError, ConnectionClosed):
            async for message in self._channel:
                await give_turn()
                if isinstance(message, bytes):
                    await self._loop.sock_sendall(self._end, message)
                elif message == "end":
                    self._end.shutdown(socket.SHUT_WR)
                    return True
                else:
                    break
        return False

    async def _near_end_gone(self) -> bool:
        while not self._gone():  # noqa: ASYNC110 - only polling shows the end of a half-closed socket
            await asyncio.sleep(_POLL_INTERVAL_S)
        return False

    async def _far_end_gone(self) -> bool:
        await self._channel.wait_closed()
        return False

    def _gone(self) -> bool:
        poll = select.poll()
        poll.register(self._end, 0)  # POLLHUP is always reported
        return bool(poll.poll(0))


async def _connect_options(endpoint: BridgeEndpoint) -> dict[str, Any]:
    """Arguments for the connection below the WebSocket."""
    if endpoint.connect is not None:
        return {"unix": True, "sock": await endpoint.connect()}
    host = urlsplit(endpoint.url).hostname or ""
    # Names below ``localhost`` are this host (RFC 6761), which not every resolver knows.
    return {"host": "127.0.0.1"} if host.endswith(".localhost") else {}


def _check_open(word: str | bytes) -> None:
    if word == "open":
        return
    kind, _, number = word.partition(" ") if isinstance(word, str) else ("", "", "")
    if kind == "error" and number.isascii() and number.isdigit() and 0 < int(number[:5]) <= _MAX_ERRNO:
        raise AgentRefusal(int(number), "")
    raise ProtocolError("The sandbox's agent sent an invalid message when it opened a connection.")


async def _hang_up(channel: ClientConnection) -> None:
    with suppress(OSError, ConnectionClosed, TimeoutError):
        await channel.close()
