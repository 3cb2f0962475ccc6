"""What ``GatewayProtocol`` offers the app beyond ASGI, as extensions of a request's scope.

The largest is the body of a large upload, from the client's socket into a file without passing through this process's
memory. An app reads a body in pieces, and every layer between the socket and the file copies each of them once more.
Whoever only wants it in a file borrows the socket instead, for as long as the body lasts, and lets the kernel do it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

from paddock.accounts.accounts import Principal
from paddock.errors import SandboxElsewhere

DIRECT_BODY: Final = "paddock.direct_body"
"""A ``DirectBody``, where the body is large and its length is known."""
CUT: Final = "paddock.cut"
"""A function that ends the connection as it is, for an answer that cannot be finished."""
TRACKED: Final = "paddock.connection"
"""The connection's entry among those that the server holds: :class:`~paddock.gateway.connections.TrackedConnection`."""

FORWARD: Final = "paddock.forward"
"""A function that has a request answered by another server,
:meth:`~paddock.gateway.protocol.GatewayProtocol.forward`."""

ASK: Final = "paddock.ask"
"""A function that asks another server for a part of the answer, :func:`~paddock.gateway.forwarding.ask`."""

FORWARDED_TO: Final = "forwarded_to"
"""Where a scope's state has the node whose server has answered."""


async def forwarded(scope: Scope, problem: SandboxElsewhere, body: bytes | None) -> bool:
    """Whether another server has answered the request, on this connection; then there is nothing left to answer.

    ``body`` is all of it, or None where none of it was read. False where there is no way to that server, or the request
    has come from another server already: then the problem is the answer.
    """
    forward, node = scope.get("extensions", {}).get(FORWARD), problem.details["node"]
    if forward is None or not await forward(node, body):
        return False
    scope.setdefault("state", {})[FORWARDED_TO] = node
    return True


async def asked(scope: Scope, node_id: str, target: str) -> bytes | None:
    """The body of another server's answer to the same caller's GET of this target. None where there is no way to that
    server, or it refuses, or the request has come from another server already."""
    ask = scope.get("extensions", {}).get(ASK)
    answer: bytes | None = None if ask is None else await ask(node_id, target.encode())
    return answer


def prove(scope: Scope, who: Principal) -> None:
    """This request has shown a key of this user's, or a token that stands for one: its connection is among the last to
    go. Raises TooManyRequests where as many are at work for him as may be."""
    tracked = scope.get("extensions", {}).get(TRACKED)
    if tracked is not None:
        tracked.work_for(who.user_id, limited=not who.is_admin)


MIN_DIRECT_BYTES = 1 << 20
"""Smaller bodies are read in pieces."""
_THREADS = 32
"""Concurrent bodies; further ones are read in pieces."""
_PIPE_BYTES = 1 << 20
_LOOK_UP_MS = 500
_QUIET_SECONDS = 120.0
"""A client that sends nothing for this long in the middle of a body counts as gone."""


class BodyCut(Exception):
    """The client went before its body was whole."""


@dataclass(frozen=True, slots=True)
class BodySocket:
    """What has been read of the body already, and a socket to read the rest from."""

    read: bytes
    socket: int
    left: int


class UploadThreads:
    """Threads for uploads alone: how long a body takes is up to its client, and nothing else may wait for that."""

    def __init__(self, threads: int = _THREADS) -> None:
        self.free = threads
        self._threads = ThreadPoolExecutor(threads, "upload")

    async def run(self, body: BodySocket, file: int) -> OSError | None:
        self.free -= 1
        stop = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._threads, _copy, body, file, stop)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([work])
            raise
        finally:
            self.free += 1


class DirectBody:
    def __init__(
        self, borrow: Callable[[], BodySocket | None], give_back: Callable[[bool], None], threads: UploadThreads
    ) -> None:
        """``give_back`` is called with whether the body was read to its end, so that the connection is reusable."""
        self._borrow = borrow
        self._give_back = give_back
        self._pouring = threads

    async def copy_to(self, file: int) -> int | None:
        """Write all of it into an open file; answers how much that was. None where it must be read in pieces.

        Raises OSError where the file system refuses, after the whole body was read all the same, so that the client
        hears of it; and ``BodyCut``.
        """
        if not self._pouring.free or (body := self._borrow()) is None:
            return None
        good = False
        try:
            refusal = await self._pouring.run(body, file)
            good = True
        finally:
            os.close(body.socket)
            self._give_back(good)
        if refusal is not None:
            raise refusal
        return len(body.read) + body.left


def _copy(body: BodySocket, file: int, stop: threading.Event) -> OSError | None:
    """The error of the file system, if it refused something."""
    refusal = None
    try:
        view = memoryview(body.read)
        while view:
            view = view[os.write(file, view) :]
    except OSError as error:
        refusal = error
    source, sink = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            left = body.left
            while left:
                _wait(body.socket, stop)
                count = os.splice(body.socket, sink, min(left, _PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK)
                if not count:
                    raise BodyCut
                left -= count
                while count:
                    try:
                        count -= os.splice(source, nowhere if refusal else file, count)
                    except OSError as error:
                        refusal = error  # the rest is read, and dropped
        finally:
            os.close(nowhere)
    except ConnectionError as error:
        raise BodyCut from error
    finally:
        os.close(source)
        os.close(sink)
    return refusal


def _wait(socket: int, stop: threading.Event) -> None:
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    for _ in range(int(_QUIET_SECONDS * 1000 / _LOOK_UP_MS)):
        if stop.is_set():
            raise BodyCut
        if poll.poll(_LOOK_UP_MS):
            return
    raise BodyCut
