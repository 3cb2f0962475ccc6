"""One program in a sandbox connected to this terminal: keys, size and output, until it ends or is detached."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.cli import output
from paddock.cli.exec import INTERRUPTED
from paddock.cli.terminal import DetachKeys, LocalTerminal
from paddock.client import AnswerLost, SandboxClient
from paddock.errors import Invalid, PaddockError

if TYPE_CHECKING:
    from paddock.client.terminal_connections import TerminalConnection

_READ_SIZE = 64 * 1024
_HANGUP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class InteractiveProgram:
    sandbox_id: str
    command: str | None = None
    """None: a login shell."""
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    user: str | None = None
    hard_timeout: float | None = None
    process_id: str | None = None
    """The process id of a detached program to attach to."""
    detach_keys: str = ""


class InteractiveSession:
    def __init__(self, client: SandboxClient, program: InteractiveProgram) -> None:
        self._local = LocalTerminal()
        self._keys = DetachKeys(program.detach_keys)
        self._client = client
        self._program = program
        self._process_id = program.process_id or ""
        self._open = False
        self._left: asyncio.Future[int | signal.Signals | None]
        """Why it ended: detached by keys (None), a signal to this process, or the program's exit code."""

    async def run(self) -> int:
        """Run it; returns the exit code for this process."""
        loop = asyncio.get_running_loop()
        self._left = loop.create_future()
        with _signals({signal.SIGINT: self._leave, signal.SIGTERM: self._leave, signal.SIGHUP: self._leave}):
            try:
                async with self._client:
                    working = asyncio.ensure_future(self._converse())
                    await _first_of(working, self._left)
                    if not self._open:  # interrupted before the connection was open
                        working.cancel()
                    await asyncio.gather(working, return_exceptions=True)
                    if not working.cancelled():
                        working.result()
            except AnswerLost as error:
                if not self._process_id:
                    raise
                raise AnswerLost(f"The connection was lost. {self._reattach_hint()}") from error
        return self._outcome(await self._left)

    async def _converse(self) -> None:
        options = await self._open_options()
        async with self._client.terminal(self._program.sandbox_id, **options) as remote:
            self._process_id, self._open = remote.process_id, True
            await self._transfer(remote)
        if remote.skipped:
            output.note(f"Warning: {output.size(remote.skipped)} of output are missing here: not read in time.")

    async def _open_options(self) -> dict[str, Any]:
        """Arguments for ``terminal``: of a new program, or of a running one to attach to."""
        program, (rows, cols) = self._program, self._local.size()
        if program.process_id is not None:
            process = await self._client.get_process(program.sandbox_id, program.process_id)
            if not process.terminal:
                raise Invalid(
                    f"{program.process_id} was not started on a terminal: `paddock exec` without -t shows it."
                )
            return {"process_id": program.process_id, "offset": process.stdout_size}
        if program.command is None:
            return {"rows": rows, "cols": cols, "cwd": program.cwd, "user": program.user}
        process = await self._client.start_process(
            program.sandbox_id,
            program.command,
            cwd=program.cwd,
            env={"TERM": "xterm-256color", **(program.env or {})},
            user=program.user,
            terminal={"rows": rows, "cols": cols},
            hard_timeout=program.hard_timeout,
        )
        self._process_id = process.process_id
        return {"process_id": process.process_id}

    async def _transfer(self, remote: TerminalConnection) -> None:
        resized = asyncio.Event()
        resized.set()
        handlers = {
            signal.SIGWINCH: lambda _: resized.set(),
            signal.SIGTSTP: lambda _: self._stop(),
            signal.SIGCONT: lambda _: self._continue(resized),
        }
        with self._local.raw(), _signals(handlers):
            tasks = {
                asyncio.create_task(self._show(remote)),
                asyncio.create_task(self._type(remote)),
                asyncio.create_task(self._resize(remote, resized)),
            }
            try:
                await _first_of(*tasks, self._left)
            finally:
                for task in tasks:
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
        if self._left.done() and self._left.result() == signal.SIGHUP:
            await self._hang_up(remote)
        elif not self._left.done():
            for problem in done:
                if isinstance(problem, Exception):
                    raise problem

    async def _show(self, remote: TerminalConnection) -> None:
        try:
            async for data in remote:
                await asyncio.to_thread(self._local.write, data)
        except OSError:
            self._leave(signal.SIGHUP)  # the terminal is gone
            return
        if not self._left.done():
            self._left.set_result(1 if remote.exit_code is None else remote.exit_code)

    async def _type(self, remote: TerminalConnection) -> None:
        async for data in _keys():
            mine, detached = self._keys.take(data)
            if mine:
                await remote.write(mine)
            if detached:
                self._leave(None)
                return
        self._leave(signal.SIGHUP)

    async def _resize(self, remote: TerminalConnection, resized: asyncio.Event) -> None:
        if self._program.process_id is not None:
            rows, cols = self._local.size()
            # a different size first, so that the program redraws its screen
            await remote.resize(rows, max(1, cols - 1))
        while await resized.wait():
            resized.clear()
            await remote.resize(*self._local.size())

    async def _hang_up(self, remote: TerminalConnection) -> None:
        """As with any terminal that closes, the program gets SIGHUP and may keep running."""
        with contextlib.suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_HANGUP_TIMEOUT_S):
                await self._client.send_signal(self._program.sandbox_id, remote.process_id, "SIGHUP")

    def _leave(self, why: signal.Signals | None) -> None:
        if not self._left.done():
            self._left.set_result(why)

    def _stop(self) -> None:
        """For SIGTSTP sent from outside; Ctrl-Z goes to the program."""
        self._local.restore()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self, resized: asyncio.Event) -> None:
        self._local.set_raw()
        resized.set()

    def _outcome(self, left: int | signal.Signals | None) -> int:
        if isinstance(left, signal.Signals):
            if self._process_id and left is not signal.SIGHUP:
                output.note(self._reattach_hint())
            return INTERRUPTED if left is signal.SIGINT else 128 + left
        if left is None:
            output.note(f"\nDetached. {self._reattach_hint('runs on')}")
            return 0
        return left

    def _reattach_hint(self, how: str = "may run on") -> str:
        return (
            f"It {how} as {self._process_id}: go back to it with "
            f"`paddock shell {self._program.sandbox_id} --attach {self._process_id}`."
        )


@contextlib.contextmanager
def _signals(handlers: Mapping[signal.Signals, Callable[[signal.Signals], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def _first_of(*awaited: asyncio.Future[Any]) -> None:
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


async def _keys() -> AsyncIterator[bytes]:
    """Keys as typed, until the terminal is gone. Reads nothing ahead, so that what is typed after the program's end
    goes to the shell."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    while True:
        loop.add_reader(0, typed.set)
        try:
            await typed.wait()
        finally:
            loop.remove_reader(0)
        typed.clear()
        try:
            data = os.read(0, _READ_SIZE)
        except BlockingIOError:
            continue
        except OSError:
            return
        if not data:
            return
        yield data
