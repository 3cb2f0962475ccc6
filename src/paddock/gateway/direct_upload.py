"""The body of a large upload, from the client's socket into a file without passing through this process's memory.

An app reads a body in pieces, and every layer between the socket and the file copies each of them once more. Whoever
only wants it in a file borrows the socket instead, for as long as the body lasts, and lets the kernel do it. Whoever
does not ask reads pieces as ever.
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

LEAST = 1 << 20
"""Smaller bodies are not worth it."""
_THREADS = 32
"""Bodies on their way at once; further ones are read in pieces."""
_PIPE_BYTES = 1 << 20
_LOOK_UP_MS = 500
_QUIET_SECONDS = 120.0
"""A client that sends nothing for so long in the middle of a body is gone."""


class BodyCut(Exception):
    """The client went before its body was whole."""


@dataclass(frozen=True, slots=True)
class LentSocket:
    """What has been read of the body already, and a socket to read the rest from."""

    read: bytes
    socket: int
    left: int


class UploadThreads:
    """Threads for this alone: how long a body takes is for its client to choose, and nothing else may wait for that."""

    def __init__(self, threads: int = _THREADS) -> None:
        self.free = threads
        self._threads = ThreadPoolExecutor(threads, "upload")

    async def run(self, lent: LentSocket, file: int) -> OSError | None:
        self.free -= 1
        stop = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._threads, _pour, lent, file, stop)
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
        self, borrow: Callable[[], LentSocket | None], give_back: Callable[[bool], None], pouring: UploadThreads
    ) -> None:
        """``give_back`` is told whether the connection is good for another request: the body was read to its end."""
        self._borrow = borrow
        self._give_back = give_back
        self._pouring = pouring

    async def pour(self, file: int) -> int | None:
        """Write all of it into an open file; answers how much that was. None where it must be read in pieces.

        Raises OSError where the file system refuses, after the whole body was read all the same, so that the client
        hears of it; and ``BodyCut``.
        """
        if not self._pouring.free or (lent := self._borrow()) is None:
            return None
        good = False
        try:
            refusal = await self._pouring.run(lent, file)
            good = True
        finally:
            os.close(lent.socket)
            self._give_back(good)
        if refusal is not None:
            raise refusal
        return len(lent.read) + lent.left


def _pour(lent: LentSocket, file: int, stop: threading.Event) -> OSError | None:
    """What the file system said, if it refused something."""
    refusal = None
    try:
        view = memoryview(lent.read)
        while view:
            view = view[os.write(file, view) :]
    except OSError as error:
        refusal = error
    source, sink = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            left = lent.left
            while left:
                _wait(lent.socket, stop)
                count = os.splice(lent.socket, sink, min(left, _PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK)
                if not count:
                    raise BodyCut
                left -= count
                while count:
                    try:
                        count -= os.splice(source, nowhere if refusal else file, count)
                    except OSError as error:
                        refusal = error  # the rest is read, and forgotten
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
