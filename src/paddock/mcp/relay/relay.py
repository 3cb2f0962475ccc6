"""The relay: keeps the connection to one of the user's servers while it is in use.

A failed server is retried with growing delays and does not affect others. An unused one is disconnected; its process
keeps running, and is adopted at the next use.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from paddock import errors
from paddock.machine.base import Machine
from paddock.mcp.endpoint import sdk
from paddock.mcp.relay.definitions import Definition
from paddock.mcp.relay.tools import KnownTool, RelayedTool, relayed
from paddock.memory import Hold, unlimited
from paddock.models.mcp import McpServerStatus
from paddock.tools.context import Progress
from paddock.tools.tool import ToolOutcome

START_SECONDS = 60.0
CALL_SECONDS = 3600.0
IDLE_SECONDS = 600.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_MIN_LEARN_INTERVAL_S = 1.0
"""Minimum interval for reading the tools of a server that keeps reporting changes, since each result is stored."""
_STABLE_AFTER_S = 60.0
"""A server that has run for this long is restarted without a growing delay."""

log = structlog.get_logger(__name__)

Attach = Callable[[], Awaitable[Machine | None]]
Dial = Callable[[str, int, float], Awaitable[Any]]


class Relay:
    def __init__(
        self,
        name: str,
        definition: Definition,
        attach: Attach,
        dial: Dial | None,
        known: Sequence[KnownTool] = (),
        learned: Callable[[Sequence[KnownTool]], Awaitable[None]] | None = None,
        hold: Hold = unlimited,
    ) -> None:
        """``attach`` returns the machine, or None if it is not running; ``learned`` is called with the server's tools;
        ``hold`` reserves memory for its messages."""
        self.name = name
        self.definition = definition
        self.status = McpServerStatus.IDLE
        self.reason: str | None = None
        self.known: Sequence[KnownTool] = known
        self._attach = attach
        self._dial = dial
        self._learned = learned
        self._hold = hold
        self._task: asyncio.Task[None] | None = None
        self._session: Any = None
        self._news = asyncio.Event()
        self._used = 0.0
        self._calls = 0

    @property
    def tools(self) -> list[RelayedTool]:
        return [relayed(self.name, known, self.call) for known in self.known]

    def start(self) -> None:
        """Start the relay if it is not running, and mark it as used."""
        self._used = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._set_status(McpServerStatus.STARTING)
            self._task = asyncio.create_task(self._run(), name=f"mcp server {self.name}")

    async def settled(self, seconds: float) -> None:
        """Returns when the server is ready or has failed, or after ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.status is McpServerStatus.STARTING:
                    await self._news.wait()

    async def stop(self) -> None:
        """Disconnect. The server's process keeps running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def end(self) -> None:
        """Disconnect and end the server's process, if it has one and its machine is running."""
        await self.stop()
        machine = await self._attach()
        if machine is None or not self.definition.argv:
            return
        stdio = await sdk("paddock.mcp.relay.stdio")
        _, process = await stdio.latest(machine, self.name, self.definition)
        if process is not None and process.running:
            with suppress(errors.ProcessEnded, errors.ProcessNotFound):
                await machine.signal(process.process_id, signal.SIGTERM)

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        self.start()
        await self.settled(START_SECONDS)
        session = self._session
        if session is None:
            why = self.reason or "it is still starting"
            return ToolOutcome(f"The MCP server {self.name!r} cannot be used now: {why}", failed=True)
        calling: asyncio.Future[ToolOutcome] = asyncio.ensure_future(
            session.call(tool, arguments, progress, CALL_SECONDS)
        )
        gone = asyncio.ensure_future(session.ended.wait())
        self._calls += 1
        try:
            await asyncio.wait({calling, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                raise errors.ServiceFailed("it ended during the call, and is being restarted.")
            return await calling
        except Exception as problem:  # noqa: BLE001 - any failure of a foreign server is a result
            return ToolOutcome(f"The MCP server {self.name!r} failed: {problem or type(problem).__name__}", failed=True)
        finally:
            self._calls -= 1
            if session.ended.is_set() and self._session is session:
                self._session = None
                self._set_status(McpServerStatus.STARTING)
            self._used = asyncio.get_running_loop().time()
            for task in (calling, gone):
                task.cancel()
            await asyncio.gather(calling, gone, return_exceptions=True)

    # Running

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                idle = await self._run_connection()
            except errors.PaddockError as problem:
                idle, why = False, problem.message
            except Exception as problem:  # noqa: BLE001 - a foreign server's failure stays its own
                idle, why = False, str(problem) or type(problem).__name__
                if said := getattr(problem, "said", ""):
                    why = f"{why} Its last output: {said}"
            else:
                why = "It ended."
            finally:
                self._session = None
            if idle:
                self._set_status(McpServerStatus.IDLE)
                return
            self._set_status(McpServerStatus.FAILED, why)
            log.info("an MCP server of a user failed", server=self.name, again_in=pause)
            if loop.time() - began > _STABLE_AFTER_S:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            if loop.time() - self._used > IDLE_SECONDS:
                return
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_connection(self) -> bool:
        """Run one connection until it ends; True if it is no longer needed, or its machine is not running."""
        machine = await self._attach()
        if machine is None:
            return True
        sessions = await sdk("paddock.mcp.relay.session")
        connected = sessions.connect(self.name, self.definition, machine, self._dial, START_SECONDS, self._hold)
        async with connected as (session, said):
            async with asyncio.timeout(START_SECONDS):
                await self._learn(session)
            self._session = session
            self._set_status(McpServerStatus.READY)
            return await self._watch(session, said)

    async def _watch(self, session: Any, said: Callable[[], str]) -> bool:
        loop = asyncio.get_running_loop()
        while not session.ended.is_set():
            waiting = [asyncio.ensure_future(session.ended.wait()), asyncio.ensure_future(session.changed.wait())]
            try:
                left = self._used + IDLE_SECONDS - loop.time()
                await asyncio.wait(waiting, timeout=max(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            if session.changed.is_set():
                session.changed.clear()
                await self._learn(session)
                await asyncio.sleep(_MIN_LEARN_INTERVAL_S)
            elif not self._calls and loop.time() - self._used > IDLE_SECONDS:
                return True
        if words := said():
            raise errors.ServiceFailed(f"It ended. Its last output: {words}")
        return False

    async def _learn(self, session: Any) -> None:
        known = await session.tools()
        if known != self.known:
            self.known = known
            if self._learned is not None:
                await self._learned(known)

    def _set_status(self, status: McpServerStatus, reason: str | None = None) -> None:
        self.status, self.reason = status, reason
        news, self._news = self._news, asyncio.Event()
        news.set()
