"""Runs costly processing of tenants' text in separate processes.

The event loop serves all tenants, and a thread shares the GIL, so a regular expression in C would block both. Anything
that a tenant can make costly therefore runs in a worker process, with a deadline at which it is killed and a memory
limit. There are only a few; users take turns, and no user gets all of them. Workers start on demand, and end when idle
or with the server.

A function that runs here must be importable from a module, take and return picklable values, and run in linear time:
the deadline is for oversights.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec, Self, TypeVar

import structlog

from paddock import errors
from paddock.fair_semaphore import FairSemaphore
from paddock.worker_process import HEAD

Args = ParamSpec("Args")
Result = TypeVar("Result")

SMALL_BYTES = 128 * 1024
"""Linear work on inputs up to this size takes a few milliseconds, less than the round trip to a worker."""
DEADLINE_SECONDS = 10.0
_MAX_WORKERS = 2
_MEMORY_BYTES = 1 << 30
_IDLE_TIMEOUT_S = 60.0
_QUEUE_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 30.0
_PIPE_BYTES = 1 << 20

log = structlog.get_logger(__name__)


class Workers:
    """A small pool of workers, used on behalf of one user. Belongs to the event loop that first uses it."""

    def __init__(self, count: int = _MAX_WORKERS, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._pool = _Pool(count, memory_bytes)
        self._user_id = ""

    def of(self, user_id: str) -> Self:
        """The same pool, for work on behalf of this user."""
        same = type(self).__new__(type(self))
        same._pool, same._user_id = self._pool, user_id
        return same

    @property
    def running(self) -> int:
        return self._pool.running

    async def call(
        self, size: int, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Run here if the input is small, else in a worker. ``size``: the input's length in bytes or characters."""
        if size <= SMALL_BYTES:
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)

    async def run(self, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        """Raises what the function raises, and InputTooCostly if it exceeds its time or memory."""
        async with self._pool.turn(self._user_id) as worker:
            return await self._pool.work(worker, function, args, kwargs)

    async def close(self) -> None:
        await self._pool.close()


class _Pool:
    def __init__(self, count: int, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._locks = FairSemaphore(count, max(1, count - 1))
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    @property
    def running(self) -> int:
        return len(self._all)

    @asynccontextmanager
    async def turn(self, user_id: str) -> AsyncIterator[_Worker]:
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT_S):
                await self._locks.acquire(user_id)
        except TimeoutError:
            raise errors.Unavailable("The server is busy with other large inputs; try again.", retry_after=5) from None
        try:
            yield await self._take()
        finally:
            self._locks.release(user_id)

    async def close(self) -> None:
        self._closed = True
        self._idle.clear()
        for worker in list(self._all):
            await self._end(worker)

    async def _take(self) -> _Worker:
        if self._closed:
            raise errors.ShuttingDown("The server is stopping.")
        while self._idle:
            worker = self._idle.pop()
            worker.rest_over()
            if worker.alive:
                return worker
            await self._end(worker)
        worker = await _Worker.start(self._memory_bytes)
        self._all.add(worker)
        return worker

    async def work(
        self, worker: _Worker, function: Callable[..., Result], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Result:
        good = False
        try:
            result: Result = await worker.work(function, args, kwargs)
            good = True
            return result
        except _Raised as raised:
            good = True
            raise raised.problem from None
        finally:
            if good and not self._closed:
                self._idle.append(worker)
                worker.rest(_IDLE_TIMEOUT_S, self._retire)
            else:  # late, dead, or its caller was cancelled
                await self._end(worker)

    def _retire(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            worker.ending = asyncio.ensure_future(self._end(worker))

    async def _end(self, worker: _Worker) -> None:
        self._all.discard(worker)
        await asyncio.shield(worker.end())


class _Raised(Exception):
    def __init__(self, problem: Exception) -> None:
        super().__init__(str(problem))
        self.problem = problem


class _Worker:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Future[None] | None = None

    @classmethod
    async def start(cls, memory_bytes: int) -> _Worker:
        # The server's environment holds secrets, so only the module path is passed on; -P keeps the current directory
        # out of it.
        env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "paddock.worker_process", str(memory_bytes),
            stdin=PIPE, stdout=PIPE, env=env, start_new_session=True, limit=_PIPE_BYTES,
        )  # fmt: skip
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await worker._receive()  # the worker reports once that it is ready
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as problem:
            await worker.end()
            raise errors.Unavailable("A worker process could not be started; the log has more.") from problem
        except BaseException:
            await worker.end()
            raise
        return worker

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def work(
        self, function: Callable[..., Result], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Result:
        job = (DEADLINE_SECONDS, function.__module__, function.__qualname__, args, kwargs)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await self._send(pickle.dumps(job, pickle.HIGHEST_PROTOCOL))
                good, result = pickle.loads(await self._receive())  # noqa: S301 (it runs our code on plain text)
        except TimeoutError:
            log.warning("a worker was killed at its deadline", function=function.__qualname__)
            raise errors.InputTooCostly(
                f"This input would take longer than the {DEADLINE_SECONDS:g} s that it may take. Send a smaller "
                "piece, or have a program in the sandbox do it, through run_command."
            ) from None
        except (asyncio.IncompleteReadError, OSError, EOFError):
            log.warning("a worker ended", function=function.__qualname__, exit_code=self._process.returncode)
            raise errors.InputTooCostly(
                "This input needs more memory or time than it may have. Send a smaller piece, or have a program in "
                "the sandbox do it, through run_command."
            ) from None
        if not good:
            raise _Raised(result)
        found: Result = result
        return found

    def rest(self, seconds: float, over: Callable[[_Worker], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, over, self)

    def rest_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def end(self) -> None:
        self.rest_over()
        if self.alive:
            with suppress(ProcessLookupError):
                self._process.kill()
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.close()
        await self._process.wait()

    async def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(HEAD.pack(len(message)))
        self._process.stdin.write(message)
        await self._process.stdin.drain()

    async def _receive(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101
        (size,) = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
        return await self._process.stdout.readexactly(size)
