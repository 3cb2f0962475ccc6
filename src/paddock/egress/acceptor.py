"""Accepts the connections of one listening socket, each in a task of its own, and ends them all when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable

from paddock.descriptors import descriptor_limit, for_one_sandbox, for_sandboxes
from paddock.http1.stream_socket import StreamSocket

# The process or the machine is short of something, which passes; the client waits in the queue meanwhile.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Linux reports on accept what befell a connection that was still in the queue: see accept(2).
_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)
_REST = 0.2


class Acceptor:
    """Takes the listening socket over: it is closed with it. Where the process may have few open files, it takes fewer
    connections than ``limit``."""

    def __init__(
        self, listener: socket.socket, serve: Callable[[StreamSocket], Awaitable[None]], limit: int, busy: bytes = b""
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._serve = serve
        files = descriptor_limit()
        self._limit = min(limit, for_one_sandbox(files))
        self._ceiling = for_sandboxes(files)
        self._busy = busy
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._tasks)

    def start(self) -> None:
        self._accepting = asyncio.create_task(self._accept(), name="egress-accept")
        self._accepting.add_done_callback(_report)

    async def close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError as trouble:
                if trouble.errno in _SHORT:
                    await asyncio.sleep(_REST)
                elif trouble.errno not in _GONE:
                    raise
                continue
            self._begin(sock)

    def _begin(self, sock: socket.socket) -> None:
        if len(self._tasks) >= self._limit or sock.fileno() >= self._ceiling:
            with contextlib.closing(sock), contextlib.suppress(OSError):
                sock.setblocking(False)
                sock.send(self._busy)
            return
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(self._served(sock), name="egress-connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_report)

    async def _served(self, sock: socket.socket) -> None:
        with contextlib.closing(sock):
            await self._serve(StreamSocket(sock))


def _report(task: asyncio.Task[None]) -> None:
    """A defect of ours must be seen; that a task was cancelled is how it ends."""
    if not task.cancelled() and (trouble := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "A connection of a sandbox failed.", "exception": trouble, "task": task}
        )
