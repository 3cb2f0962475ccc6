"""One connection's use of a sandbox: keeps it running while bytes flow, and counts them.

A connection that is open but silent (a forgotten tab, an idle keep-alive) is no use of the sandbox: after a quiet time
the use ends and the idle deadline counts. The first byte after that begins it again, and resumes the sandbox if it was
paused meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from paddock import errors
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.store.records import SandboxRow

QUIET_SECONDS = 30.0

log = structlog.get_logger(__name__)


class TrafficLease:
    """``close`` it when the connection is done with this sandbox, however that came about."""

    def __init__(self, controller: Controller, sandbox: SandboxRow, on_lost: Callable[[], None]) -> None:
        """``on_lost``: called when bytes flow again and the sandbox cannot be entered any more."""
        self.sandbox = sandbox
        self.held = False
        """A request waits for its response, so silence does not mean idle."""
        self._controller = controller
        self._quiet_seconds = min(QUIET_SECONDS, sandbox.timeout / 2)
        self._on_lost = on_lost
        self._turn = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._use: ActiveSandbox | None = None
        self._moved = asyncio.Event()
        self._bytes_in = 0
        self._bytes_out = 0
        self._watching = asyncio.create_task(self._watch())

    async def enter(self) -> ActiveSandbox:
        """The sandbox, running. Raises SandboxNotFound, Asleep, SandboxBusy, QuotaExceeded, Unavailable."""
        async with self._turn:
            if self._use is None:
                self._use = await self._stack.enter_async_context(self._controller.use_key(self.sandbox.key, wake=True))
                self.sandbox = self._use.sandbox
            self._moved.set()
            return self._use

    async def leave(self) -> None:
        """Record what was moved, and let the idle deadline count."""
        async with self._turn:
            use, self._use = self._use, None
            if use is None:
                return
            moved_in, moved_out, self._bytes_in, self._bytes_out = self._bytes_in, self._bytes_out, 0, 0
            try:
                if moved_in or moved_out:
                    await use.record(bytes_in=moved_in, bytes_out=moved_out)
            except errors.Unavailable:
                log.warning("bytes could not be counted", sandbox_id=use.sandbox.sandbox_id, bytes=moved_in + moved_out)
            finally:
                await self._stack.aclose()

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self.leave()

    def sent(self, count: int) -> None:
        """Into the sandbox."""
        self._bytes_in += count
        self._moved.set()

    def received(self, count: int) -> None:
        """Out of it."""
        self._bytes_out += count
        self._moved.set()

    async def _watch(self) -> None:
        """Use the sandbox while bytes flow, and leave it while they do not."""
        while True:
            self._moved.clear()
            try:
                async with asyncio.timeout(self._quiet_seconds):
                    await self._moved.wait()
            except TimeoutError:
                if self.held:
                    continue
                await self.leave()
                await self._moved.wait()
            try:
                await self.enter()
            except errors.PaddockError as error:
                log.info("a sandbox cannot be entered again", sandbox_id=self.sandbox.sandbox_id, reason=error.message)
                self._on_lost()
                return
            # Busy: checked again after half the time.
            await asyncio.sleep(self._quiet_seconds / 2)
