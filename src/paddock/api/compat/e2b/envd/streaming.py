"""A server stream: sends events, keepalives while there are none, and ends at its deadline.

It ends in one of four ways: the source ends; an error occurs, which the last envelope reports; the client disconnects,
which ends nothing inside the sandbox; or the sandbox is deleted or paused, and the connection is broken without a last
envelope, by which E2B's clients detect it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from paddock import errors
from paddock.api.compat.e2b.envd.connect import STREAM_HEADERS, Code, ConnectError, as_connect, end_of_stream, envelope
from paddock.api.compat.e2b.envd.inside import EnvdContext
from paddock.models import State

KEEP_ALIVE = b'{"event":{"keepalive":{}}}'
_PING_SECONDS = 90.0
_SHORT_COMMAND_S = 0.05
"""Commands that end within this time are not worth the tasks that watch a longer one."""
_POLL_SECONDS = 2.0
"""Interval of reading the state from the database, because other servers may pause or delete the sandbox."""
_END_SECONDS = 2.0

Source = AsyncGenerator[bytes, None]
"""Encoded messages without envelopes."""


class StreamCut(Exception):
    """The sandbox is gone: the client must see a broken connection."""


class ServerStream:
    def __init__(self, inside: EnvdContext, source: Source, *, keep_alive: bytes = KEEP_ALIVE) -> None:
        self._inside = inside
        self._source = source
        self._exchange = inside.exchange
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._last_sent = self._loop.time()

    async def run(self, timeout: float | None = None, expire: Callable[[], Awaitable[None]] | None = None) -> None:
        """``expire`` is called at the deadline, before the client is informed."""
        pump = asyncio.create_task(self._pump())
        try:
            if not (await asyncio.wait({pump}, timeout=_quickly(timeout)))[0]:
                await self._accompany(pump, timeout, expire)
            elif (problem := pump.exception()) is not None:
                raise problem
        finally:
            pump.cancel()
            await asyncio.wait({pump})

    async def _accompany(
        self, pump: asyncio.Task[None], timeout: float | None, expire: Callable[[], Awaitable[None]] | None
    ) -> None:
        deadline = None if timeout is None else self._loop.time() + max(0.0, timeout - _SHORT_COMMAND_S)
        gone = asyncio.create_task(self._exchange.body.disconnected())
        lost = asyncio.create_task(self._lost())
        try:
            while not (pump.done() or gone.done() or lost.done()):
                now = self._loop.time()
                if deadline is not None and now >= deadline:
                    await self._expired(pump, expire)
                    return
                ping = self._last_sent + self._interval
                if now >= ping:
                    await self._ping()
                    ping = self._last_sent + self._interval
                until = ping if deadline is None else min(ping, deadline)
                await asyncio.wait({pump, gone, lost}, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
            if lost.done() and not pump.done():
                raise StreamCut
            if pump.done() and (problem := pump.exception()) is not None:
                raise problem
        finally:
            for task in (gone, lost):
                task.cancel()
            await asyncio.wait({gone, lost})

    async def _expired(self, pump: asyncio.Task[None], expire: Callable[[], Awaitable[None]] | None) -> None:
        pump.cancel()
        await asyncio.wait({pump})
        if expire is not None:
            await expire()
        late = ConnectError(Code.DEADLINE_EXCEEDED, "the time that the client gave for this call is over")
        await self._send(end_of_stream(late), more=False)

    async def _pump(self) -> None:
        """Copy from the source to the client. Errors before the first message are also reported by the last
        envelope."""
        try:
            try:
                async for message in self._source:
                    await self._send(envelope(message))
            except ConnectError as error:
                await self._send(end_of_stream(error), more=False)
            except errors.PaddockError as error:
                if await self._is_lost() or (self._exchange.started and isinstance(error, errors.Unavailable)):
                    raise StreamCut from None
                await self._send(end_of_stream(as_connect(error)), more=False)
            else:
                await self._send(end_of_stream(), more=False)
        finally:
            await self._source.aclose()

    async def _ping(self) -> None:
        """Never sent as the first message, which signals the start."""
        if self._exchange.started:
            await self._send(envelope(self._keep_alive))
        self._last_sent = self._loop.time()

    async def _send(self, data: bytes, *, more: bool = True) -> None:
        exchange = self._exchange
        if not exchange.started:
            await exchange.start(200, STREAM_HEADERS)
        self._last_sent = self._loop.time()
        await exchange.write(data, more=more)

    async def _lost(self) -> None:
        """Returns when the sandbox is no longer running, or this server stops."""
        stopping = asyncio.create_task(self._exchange.scope["app"].state.stopping.wait())
        try:
            with self._inside.context.bus.listen(self._inside.sandbox.sandbox_id) as news:
                while not (stopping.done() or await self._is_lost()):
                    news.clear()
                    told = asyncio.create_task(news.wait())
                    try:
                        await asyncio.wait({told, stopping}, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        told.cancel()
        finally:
            stopping.cancel()

    async def _is_lost(self) -> bool:
        try:
            row = await self._inside.context.row_cache.get(self._inside.sandbox.sandbox_id)
        except errors.StoreUnavailable:
            return False  # a failed query does not mean that it is gone
        return row is None or row.state is not State.RUNNING or row.started_at != self._inside.sandbox.started_at

    @property
    def _interval(self) -> float:
        asked = self._exchange.headers.get("keepalive-ping-interval", "")
        return float(asked) if asked.isascii() and asked.isdecimal() and 0 < int(asked) < 1 << 31 else _PING_SECONDS


def timeout_of(inside: EnvdContext) -> float | None:
    """The client's timeout in seconds; None if there is none."""
    asked = inside.exchange.headers.get("connect-timeout-ms", "")
    if not asked:
        return None
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 10):
        raise ConnectError(Code.INVALID_ARGUMENT, "Connect-Timeout-Ms must be a number of at most ten digits")
    return int(asked) / 1000 or None


def _quickly(timeout: float | None) -> float:
    return _SHORT_COMMAND_S if timeout is None else min(_SHORT_COMMAND_S, timeout)
