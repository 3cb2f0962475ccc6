"""Accepts connections on one listening socket, each in its own task, and ends them all on close."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from paddock.descriptors import EXHAUSTED_ERRORS, GONE_ERRORS, descriptor_limit, for_one_sandbox, for_sandboxes
from paddock.http1.stream_socket import StreamSocket
from paddock.loop_turns import give_turn

_RETRY_S = 0.2


class Acceptor:
    """Owns the listening socket and closes it. If the process may have few open files, it accepts fewer connections
    than ``limit``."""

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
                await give_turn()
                sock, _ = await loop.sock_accept(self._listener)
            except OSError as trouble:
                if trouble.errno in EXHAUSTED_ERRORS:
                    await asyncio.sleep(_RETRY_S)
                elif trouble.errno not in GONE_ERRORS:
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
    """Report a bug; cancellation is the normal end of a task."""
    if not task.cancelled() and (trouble := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "A connection of a sandbox failed.", "exception": trouble, "task": task}
        )
