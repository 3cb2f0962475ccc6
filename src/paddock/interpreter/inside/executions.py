"""One execution: runs in its own task, so that its client may disconnect.

Backpressure: if nobody reads the output, the kernel blocks instead of filling the memory. When the reader disconnects
the execution is abandoned: the code is interrupted, and its remaining output is discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Callable

from . import outputs
from .kernels import CannotStart, Kernel, KernelEnded
from .outputs import Output

_BUFFERED = 64
_AGAIN = 1.0
_TRIES = 10


class Execution:
    def __init__(self, run: Callable[[Execution], Awaitable[None]]) -> None:
        self.reason: str | None = None
        """Why its kernel was stopped on purpose, if it was."""
        self._outputs: asyncio.Queue[Output | None] = asyncio.Queue(_BUFFERED)
        self._kernel: Kernel | None = None
        self._abandoned = False
        self._task: asyncio.Task[None] = asyncio.ensure_future(self._whole(run))

    async def run_on(self, kernel: Kernel, code: str, env: Mapping[str, str], *, again: bool = False) -> bool:
        """Called by the context when this execution's turn comes. With ``again``, a kernel that ended before the code
        started is not an error yet: returns False, and the caller tries another kernel."""
        if self._abandoned:
            return True
        begun = False
        said = kernel.execute(code, env)
        self._kernel = kernel
        try:
            async for output in said:
                begun = True
                await self._put(output)
        except KernelEnded as problem:
            if again and not begun and self.reason is None:
                return False
            await self._put(self._ended(problem))
        finally:
            self._kernel = None
            await said.aclose()
        return True

    async def read(self, silence: float) -> AsyncGenerator[Output, None]:
        """All output, with a keepalive after each ``silence`` seconds without any, and the end."""
        while True:
            try:
                output = await asyncio.wait_for(self._outputs.get(), silence)
            except asyncio.TimeoutError:
                yield outputs.KEEPALIVE
                continue
            if output is None:
                break
            yield output
        yield outputs.END

    async def abandon(self) -> None:
        """The reader has disconnected. Returns when the code has stopped, or cannot be stopped."""
        if self._abandoned or self._task.done():
            return
        self._abandoned = True
        self._drain()
        if self._kernel is None:
            self._task.cancel()  # waiting for its turn
        else:
            await self._interrupt(self._kernel)

    async def _whole(self, run: Callable[[Execution], Awaitable[None]]) -> None:
        try:
            await run(self)
        except CannotStart as problem:
            await self._put(outputs.error("KernelNotStarted", str(problem)))
        except Exception as problem:  # noqa: BLE001 (a defect of ours must end the stream, not leave it open)
            await self._put(outputs.error(type(problem).__name__, str(problem)))
        finally:
            await self._put(None)

    async def _put(self, output: Output | None) -> None:
        if not self._abandoned:
            await self._outputs.put(output)

    def _drain(self) -> None:
        """Unblock the tasks that wait to put output into the queue."""
        while not self._outputs.empty():
            self._outputs.get_nowait()

    async def _interrupt(self, kernel: Kernel) -> None:
        """Repeat until it stops: an interrupt may come too early, or be caught by the code."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(_TRIES):
            kernel.interrupt()
            await asyncio.wait({self._task}, timeout=_AGAIN)
            if self._task.done():
                return
            if kernel.patience is not None and loop.time() - begun >= kernel.patience:
                await kernel.close()

    def _ended(self, problem: KernelEnded) -> Output:
        return outputs.error("ContextRestarting", self.reason or f"Context was restarted: {problem}")
