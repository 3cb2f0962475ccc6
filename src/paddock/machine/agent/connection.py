"""The connection to one sandbox's agent: opened at first use, and again after the link was lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from paddock import errors
from paddock.machine.agent.failures import LinkLost
from paddock.machine.agent.link import AgentLink
from paddock.machine.agent.pending import SingleReply
from paddock.machine.agent.wire import RequestKind, Writer

Connect = Callable[[], Awaitable[socket.socket]]
T = TypeVar("T")

REPLY_SECONDS = 30.0
"""Timeout for requests that the agent answers at once."""
WORK_SECONDS = 600.0
"""Timeout for requests that take as long as a directory tree is large."""


class AgentConnection:
    def __init__(
        self,
        sandbox_id: str,
        connect: Connect,
        reply_seconds: float = REPLY_SECONDS,
        ready: Callable[[], None] = lambda: None,
        *,
        descriptors: bool = True,
    ) -> None:
        """``ready`` raises if the machine cannot answer now, because it is frozen or gone."""
        self._descriptors = descriptors
        self.reply_seconds = reply_seconds
        self._ready = ready
        self._sandbox_id = sandbox_id
        self._connect = connect
        self._link: AgentLink | None = None
        self._opening: asyncio.Task[AgentLink] | None = None
        self._closed = False

    async def link(self) -> AgentLink:
        """The live link, or a new one. Concurrent callers wait for the same attempt."""
        self._ready()
        if self._link is not None and self._link.alive:
            return self._link
        if self._closed:
            raise self._detach()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and task is not None and not task.cancelling():
                raise self._detach() from None
            raise

    async def ask(self, action: Callable[[AgentLink], Awaitable[T]], *, again: bool) -> T:
        """Run ``action`` on a link. Retried once if the link was lost before the request was sent; otherwise only if
        ``again``.

        ``again``: the action is idempotent.
        """
        try:
            return await action(await self.link())
        except LinkLost as lost:
            if self._closed or (lost.sent and not again):
                raise
        return await action(await self.link())

    async def call(
        self,
        kind: RequestKind,
        payload: Writer,
        exchange: Callable[[], SingleReply[T]],
        *,
        again: bool,
        seconds: float | None = None,
    ) -> T:
        """One request and its reply, within ``seconds`` (default: this connection's timeout)."""
        limit = self.reply_seconds if seconds is None else seconds
        return await self.ask(lambda link: link.call(kind, payload, exchange(), limit), again=again)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._link is not None:
            self._link.close()

    async def _open(self) -> AgentLink:
        try:
            async with asyncio.timeout(self.reply_seconds):
                connection = await self._connect()
                return await AgentLink.open(connection, self.reply_seconds, descriptors=self._descriptors)
        except TimeoutError:
            raise errors.ProviderTimeout(f"Sandbox {self._sandbox_id!r} cannot be reached: no answer.") from None
        except OSError as error:
            raise errors.ProviderUnavailable(
                f"Sandbox {self._sandbox_id!r} cannot be reached: {error.strerror or error}."
            ) from error

    def _opened(self, opening: asyncio.Task[AgentLink]) -> None:
        self._opening = None
        if opening.cancelled() or opening.exception() is not None:
            return
        self._link = opening.result()
        if self._closed:
            self._link.close()

    def _detach(self) -> errors.ProviderUnavailable:
        return errors.ProviderUnavailable(f"The machine of sandbox {self._sandbox_id!r} was let go of.")
