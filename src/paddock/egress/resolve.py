"""Resolves names on the host, in dedicated threads, so that a slow name server blocks nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from paddock import errors
from paddock.fair_semaphore import FairSemaphore

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a name to its addresses, best first. Raises :class:`~paddock.errors.NotFound` for a name that does not
exist, :class:`~paddock.errors.Unavailable` if that is not known."""

PATIENCE = 10.0
_THREADS = 32
_USER_THREADS = 8
"""A name server that never answers blocks a thread for many seconds: one user, with any number of sandboxes, gets at
most a quarter of the threads."""
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


class HostResolver:
    """Uses the host's own resolver. One for the whole server; ``share()`` gives each sandbox its part."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="egress-resolve")
        self._users = FairSemaphore(_THREADS, _USER_THREADS)

    def share(self, owner: Callable[[], str] = str, most: int = 4) -> Resolve:
        """A resolver with at most ``most`` concurrent lookups, so that one sandbox cannot take every thread of its
        ``owner``. The owner's id is read for each lookup, because a warm machine has no owner at first."""
        turns = asyncio.Semaphore(most)

        async def resolve(name: str) -> Sequence[str]:
            try:
                async with asyncio.timeout(self._patience):
                    return await self._in_turn(turns, owner(), name)
            except TimeoutError as trouble:
                raise errors.Unavailable(f"The name servers of the host do not answer for {name}.") from trouble

        return resolve

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, turns: asyncio.Semaphore, user_id: str, name: str) -> Sequence[str]:
        await turns.acquire()
        try:
            await self._users.acquire(user_id)
        except BaseException:
            turns.release()
            raise
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, look_up, name)

        def ended(done: asyncio.Future[Sequence[str]]) -> None:
            turns.release()
            self._users.release(user_id)
            if not done.cancelled():
                done.exception()  # retrieve the exception, since the caller may have timed out

        # Released when the thread ends, not when the caller times out: a thread cannot be cancelled.
        lookup.add_done_callback(ended)
        return await asyncio.shield(lookup)


def look_up(name: str) -> Sequence[str]:
    """Blocking."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as trouble:
        if trouble.errno in _NO_SUCH_NAME:
            raise errors.NotFound(f"There is no host {name}.") from trouble
        raise errors.Unavailable(f"{name} cannot be resolved: {trouble.strerror}.") from trouble
    except (OSError, UnicodeError) as trouble:
        raise errors.Unavailable(f"{name} cannot be resolved: {trouble}.") from trouble
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
