"""A process with four pipes: requests in, reports out, and standard output and error of it and its children.

It reports the end of a request after all output of it was written, so emptying the pipes at the report assigns output
to the right request. Output that nobody reads is left in the pipe, which blocks the process. Only between requests it
is read and discarded, so that background processes are not blocked.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import signal
import struct
import termios
from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from . import outputs
from .kernels import CannotStart, Kernel, KernelEnded
from .outputs import Output
from .parent_death import die_with

STDOUT, STDERR, REPORT = "stdout", "stderr", "report"
_END_SECONDS = 5.0

Said = tuple[str, str]
"""Which pipe, and the data. A report is one line."""


class PipedProcess:
    def __init__(self, argv: list[str], cwd: str) -> None:
        """``{orders}`` and ``{reports}`` in ``argv`` are replaced by the descriptors of these pipes."""
        self._argv = argv
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._orders = -1
        self._pipes: dict[str, _Pipe] = {}
        self._meanwhile: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._ended.done()

    async def start(self) -> None:
        pairs = {name: os.pipe() for name in (STDOUT, STDERR, REPORT, "orders")}
        theirs = {name: ends[name != "orders"] for name, ends in pairs.items()}
        ours = {name: ends[name == "orders"] for name, ends in pairs.items()}
        parent = os.getpid()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(word.format(orders=theirs["orders"], reports=theirs[REPORT]) for word in self._argv),
                cwd=self._cwd,
                env={**os.environ, "PWD": self._cwd},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs[STDOUT],
                stderr=theirs[STDERR],
                pass_fds=(theirs[REPORT], theirs["orders"]),
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        except OSError as problem:
            raise CannotStart(f"{self._argv[0]} cannot be started: {problem.strerror}") from None
        finally:
            self._orders = ours.pop("orders")
            self._pipes = {name: _Pipe(descriptor) for name, descriptor in ours.items()}
            for descriptor in theirs.values():
                os.close(descriptor)
        self._ended = asyncio.ensure_future(self._process.wait())

    async def request(self, order: bytes) -> AsyncGenerator[Said, None]:
        """Send a request and yield all following output. The caller closes the iterator at the report that ends the
        request."""
        await self._listen_again()
        await asyncio.get_running_loop().run_in_executor(None, self._write, order)
        try:
            async for said in self._read_output():
                yield said
        finally:
            self._meanwhile = asyncio.ensure_future(self._ignore())

    def order(self, order: bytes) -> None:
        """Send a short message while a request is running."""
        if self.alive:
            self._write(order)

    def signal(self, number: int) -> None:
        if self._process is not None and self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def close(self) -> None:
        self.signal(signal.SIGKILL)
        await self._listen_again()
        if self._process is not None:
            await asyncio.wait({self._ended}, timeout=_END_SECONDS)
        for pipe in self._pipes.values():
            pipe.close()
        self._pipes = {}
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    async def _read_output(self) -> AsyncGenerator[Said, None]:
        while True:
            gone = self._ended.done()
            reports = self._pipes[REPORT].read_lines()
            for name in (STDOUT, STDERR):
                if text := self._pipes[name].read():
                    yield name, text
            for line in reports:
                yield REPORT, line
            if gone:
                raise KernelEnded(_exit_reason(self._ended.result()))
            await self._wait_readable()

    async def _wait_readable(self) -> None:
        """Wait until there is data to read, or the process has ended."""
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        watched = [pipe.descriptor for pipe in self._pipes.values() if not pipe.at_end]
        for descriptor in watched:
            loop.add_reader(descriptor, _tell, news)
        try:
            either: set[asyncio.Future[Any]] = {news, self._ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for descriptor in watched:
                loop.remove_reader(descriptor)

    async def _ignore(self) -> None:
        with suppress(KernelEnded):
            async for _ in self._read_output():
                pass

    async def _listen_again(self) -> None:
        if self._meanwhile is not None:
            self._meanwhile.cancel()
            await asyncio.wait({self._meanwhile})
            self._meanwhile = None

    def _write(self, order: bytes) -> None:
        rest = memoryview(order)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._orders, rest) :]


def _tell(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


class PipedKernel(Kernel):
    """A kernel in a piped process, which a subclass starts and whose reports it reads."""

    patience = 3.0

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._process: PipedProcess | None = None
        self._count = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    async def _spawn(self, argv: list[str]) -> PipedProcess:
        self._process = PipedProcess(argv, self._cwd)
        await self._process.start()
        return self._process

    async def _run(self, order: bytes) -> AsyncGenerator[Output, None]:
        """Carry out a request until a report ends it."""
        assert self._process is not None
        self._count += 1
        yield outputs.count(self._count)
        said = self._process.request(order)
        try:
            async for where, text in said:
                if where != REPORT:
                    for piece in outputs.pieces(text):
                        yield outputs.stream(where, piece)
                    continue
                reported, ended = self._report(text)
                for output in reported:
                    yield output
                if ended:
                    return
        finally:
            await said.aclose()

    @abstractmethod
    def _report(self, text: str) -> tuple[list[Output], bool]:
        """The outputs in a report, and whether it ends the request."""


class _Pipe:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.at_end = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def read(self) -> str:
        """Read what is in the pipe now. Data that arrives meanwhile is not read, as it may be endless."""
        size = struct.unpack("i", fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0" * 4))[0]
        try:
            data = os.read(self.descriptor, max(1, size))
        except BlockingIOError:
            return ""
        self.at_end = not data
        return self._decoder.decode(data)

    def read_lines(self) -> list[str]:
        *lines, self._line = (self._line + self.read()).split("\n")
        return lines

    def close(self) -> None:
        os.close(self.descriptor)


def _exit_reason(status: int) -> str:
    if status < 0:
        return f"its kernel was ended by {signal.Signals(-status).name}"
    return f"its kernel ended with exit code {status}"
