"""Runs one remote process and shows its output on this terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any, BinaryIO

from paddock.cli import output
from paddock.cli.exec import INTERRUPTED, NOBODY_READS, STILL_RUNNING, ExecRequest
from paddock.client import Ended, Output, ProcessEvent, SandboxClient, Started
from paddock.errors import PaddockError


class AttachedProcess:
    def __init__(self, client: SandboxClient, wanted: ExecRequest) -> None:
        self._client = client
        self._wanted = wanted
        self._process_id = ""
        self._shown = {"stdout": 0, "stderr": 0}
        self._lost = 0
        self._interrupts = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        watching = asyncio.ensure_future(self._watch())
        loop = asyncio.get_running_loop()
        # Windows has no add_signal_handler: there Ctrl-C ends the program at once, through asyncio's own handler.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGINT, self._interrupt, watching)
        try:
            async with self._client:
                return await watching
        except asyncio.CancelledError:
            if self._process_id:
                output.note(f"\nDetached: it may run on as {self._process_id}.")
            return INTERRUPTED
        except BrokenPipeError:
            return NOBODY_READS
        finally:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(signal.SIGINT)

    async def _watch(self) -> int:
        try:
            async for event in self._events():
                if isinstance(event, Started):
                    self._process_id = event.process_id
                elif isinstance(event, Output):
                    self._show(event)
                else:
                    self._warn_of_loss()
                    return self._exit_code(event)
        except BrokenPipeError:
            # The reader of our output has closed it; treat that like a terminal that hangs up.
            await self._signal("SIGHUP")
            raise
        finally:
            for task in self._tasks:
                task.cancel()
        return 1

    async def _events(self) -> AsyncIterator[ProcessEvent]:
        wanted, client = self._wanted, self._client
        if not wanted.interactive:
            async for event in client.stream_command(
                wanted.sandbox_id,
                wanted.command,
                timeout=wanted.timeout,
                hard_timeout=wanted.hard_timeout,
                cwd=wanted.cwd,
                env=wanted.env,
                user=wanted.user,
            ):
                yield event
            return
        process = await client.start_process(
            wanted.sandbox_id,
            wanted.command,
            stdin=True,
            cwd=wanted.cwd,
            env=wanted.env,
            user=wanted.user,
            hard_timeout=wanted.hard_timeout,
        )
        self._process_id = process.process_id
        self._begin(self._forward_stdin())
        async for event in client.stream_process(wanted.sandbox_id, self._process_id):
            yield event

    def _show(self, event: Output) -> None:
        data = event.raw
        self._lost += event.offset - self._shown[event.stream]
        self._shown[event.stream] = event.offset + len(data)
        _write(sys.stdout.buffer if event.stream == "stdout" else sys.stderr.buffer, data)

    def _warn_of_loss(self) -> None:
        """Warn about lost output: a sandbox keeps only a limited amount that was not read in time."""
        if self._lost:
            output.note(
                f"Warning: {output.size(self._lost)} of output are missing here: they were not read in time. "
                "Write that much to a file, and fetch it with `paddock cp`."
            )

    def _exit_code(self, ended: Ended) -> int:
        if ended.exit_code is not None:
            return ended.exit_code
        if ended.status == "running":
            output.note(f"Still running as {ended.process_id}.")
            return STILL_RUNNING
        output.print_error(f"The process is {ended.status}: its exit code is not known.")
        return 1

    def _interrupt(self, watching: asyncio.Future[int]) -> None:
        self._interrupts += 1
        if self._interrupts > 1 or not self._process_id:
            watching.cancel()
        else:
            self._begin(self._signal("SIGINT"))

    async def _signal(self, name: str) -> None:
        if self._process_id:
            with contextlib.suppress(PaddockError):  # it may have ended meanwhile
                await self._client.send_signal(self._wanted.sandbox_id, self._process_id, name)

    async def _forward_stdin(self) -> None:
        with contextlib.suppress(PaddockError):  # it may have ended, or closed its input
            async for chunk in _stdin():
                await self._client.write_stdin(self._wanted.sandbox_id, self._process_id, chunk)
            await self._client.write_stdin(self._wanted.sandbox_id, self._process_id, close=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()


async def _stdin() -> AsyncIterator[bytes]:
    """Standard input of any kind. Read in a daemon thread, because a blocked read must not prevent the exit, and
    asyncio's pipes do not support regular files."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)

    def read() -> None:
        with contextlib.suppress(OSError, RuntimeError):  # closed meanwhile, or the loop has ended
            while True:
                chunk = os.read(0, 64 * 1024)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
                if not chunk:
                    return

    threading.Thread(target=read, daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
