"""Accepting connections, in the web server's place: no more than there is room for, and never out of descriptors.

An event loop's own accept takes all that wait in the queue, and where no descriptor is left it resets them, those of
clients with a key among them. Here each is checked before the next is accepted. Where the process has no descriptor
left after all, accepting is suspended; clients wait in the kernel's queue meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from paddock.descriptors import EXHAUSTED_ERRORS, GONE_ERRORS
from paddock.gateway.connections import Connections, TrackedConnection

_BATCH = 32
"""Accepted in one go, before the event loop serves others."""
_SUSPEND_SECONDS = 0.1
BACKLOG = 4096
"""Connections that may wait in the kernel's queue; it takes no more than ``net.core.somaxconn``."""
_DEFER_SECONDS = 1
_LOG_INTERVAL_SECONDS = 60.0
"""Between two lines in the log about the same trouble."""
_FULL_BODY = (
    b'{"success": false, "error": {"code": "too_many_connections", "message": "This server has as many connections \
as it can serve. Try again in a moment.", "status": 503, "details": {}, "request_id": ""}}'
)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: " + str(len(_FULL_BODY)).encode() + b"\r\n\r\n" + _FULL_BODY
)
_DROPPED_BYTES = 65_536

log = structlog.get_logger(__name__)

Make = Callable[[TrackedConnection], asyncio.Protocol]


class Listener:
    """As much of an event loop's server as uvicorn uses. ``make`` builds the protocol of one connection."""

    def __init__(self, sockets: Sequence[socket.socket], connections: Connections, make: Make) -> None:
        self.sockets = list(sockets)
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._suspended: asyncio.TimerHandle | None = None
        self._logged_at = -_LOG_INTERVAL_SECONDS
        self._closed = False

    def start(self) -> None:
        for listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._suspended is not None:
            self._suspended.cancel()
        for listening in self.sockets:
            self._loop.remove_reader(listening)
            listening.close()

    async def wait_closed(self) -> None:
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as trouble:
                if trouble.errno in GONE_ERRORS:
                    continue
                self._suspend(trouble)
                return
            self._take(sock, str(address[0]) if address else "")

    def _take(self, sock: socket.socket, address: str) -> None:
        tracked = self._connections.admit(address, sock.fileno())
        if tracked is None:
            _refuse(sock)
            self._log("more connections than there is room for; some are refused")
            return
        sock.setblocking(False)
        tracked.has_data = partial(_has_data, sock)
        if tracked.has_data():
            tracked.begin()
        task = self._loop.create_task(self._begin(sock, tracked))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, sock: socket.socket, tracked: TrackedConnection) -> None:
        if tracked.ended:  # closed before it began
            sock.close()
            return
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: self._make(tracked), sock)
        except OSError:  # gone already
            tracked.end()
            sock.close()
        except BaseException:
            tracked.end()
            sock.close()
            raise

    def _suspend(self, trouble: OSError) -> None:
        if trouble.errno in EXHAUSTED_ERRORS:
            self._log(
                f"accepting is suspended: {trouble.strerror}; raise the limit of open files (LimitNOFILE, ulimit -n)"
            )
        else:
            log.error("accepting connections failed; tried again in a moment", problem=str(trouble))
        for listening in self.sockets:
            self._loop.remove_reader(listening)
        self._suspended = self._loop.call_later(_SUSPEND_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._suspended = None
        if not self._closed:
            self.start()

    def _log(self, what: str) -> None:
        now = self._loop.time()
        if now - self._logged_at >= _LOG_INTERVAL_SECONDS:
            self._logged_at = now
            held, refused = len(self._connections), self._connections.refused
            log.warning(what, connections=held, refused=refused, most=self._connections.limits.in_all)


def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets for every address of the host, which do not block. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as stack:
        sockets = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = stack.enter_context(socket.socket(family, kind, protocol))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Clients that send nothing stay in the kernel's queue for a second; others are accepted at once.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_SECONDS)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind(address)
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on {host}, port {port}: {error.strerror}") from None
            sock.listen(backlog)
            sock.setblocking(False)
            sockets.append(sock)
        stack.pop_all()
        return sockets


def _has_data(sock: socket.socket) -> bool:
    """Or the end of the stream, so that a closed connection is noticed at once."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def _refuse(sock: socket.socket) -> None:
    """At once. What it has sent is read and dropped: closing with unread bytes would discard the response."""
    with contextlib.closing(sock), contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(_FULL)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(_DROPPED_BYTES)
