"""Pending requests: which replies each expects, who waits for them, and what happens to replies without a waiter."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from paddock import errors
from paddock.loop_turns import give_turn
from paddock.machine.agent.replies import FileEntry, read_refusal
from paddock.machine.agent.wire import ProtocolError, Reader, ReplyKind

if TYPE_CHECKING:
    from paddock.machine.agent.link import AgentLink

Result = TypeVar("Result")
Item = TypeVar("Item")


class PendingRequest(ABC):
    """A request from its frame to its last reply. All methods run on the event loop, called by the link."""

    takes_descriptor = False
    open_ended = False
    """The reply may come late or never, so a cancelled waiter cancels the request at the agent."""

    def __init__(self) -> None:
        self.link: AgentLink | None = None
        """Set while the request is open."""
        self.number = 0
        self.sent = False

    @abstractmethod
    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        """Handle one reply, taking ownership of its descriptor. True if it was the last one."""

    @abstractmethod
    def fail(self, error: errors.PaddockError) -> None:
        """No more replies will come."""

    def stop(self) -> None:
        """There is no waiter any more; further replies are dropped."""
        if self.link is not None and self.open_ended:
            self.link.cancel(self)


class SingleReply(PendingRequest, Generic[Result]):
    """A request with one reply.

    Subclasses decode it in a method. Storing a bound method of its own would create a reference cycle: large replies
    would then be freed by the garbage collector, all at once, which blocks the event loop.
    """

    def __init__(self, expected: ReplyKind) -> None:
        super().__init__()
        self._expected = expected
        self._future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def _decode(self, body: Reader) -> Result: ...

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        if kind is ReplyKind.ERROR:
            self._raise(read_refusal(body))
        elif kind is self._expected:
            result = self._decode(body)
            body.end()
            self._give(result)
        else:
            raise _unexpected(kind)
        return True

    def fail(self, error: errors.PaddockError) -> None:
        self._raise(error)

    async def answer(self, seconds: float | None) -> Result:
        """The reply, or ProviderTimeout. Leaves nothing behind if cancelled."""
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            return await self._future
        except asyncio.CancelledError:
            self._withdraw()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _give(self, result: Result) -> None:
        if self._future.done():
            self._dispose(result)
        else:
            self._future.set_result(result)

    def _raise(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def _dispose(self, result: Result) -> None:
        """Clean up a reply without a waiter."""

    def _expire(self) -> None:
        if not self._future.done():
            self._future.set_exception(errors.ProviderTimeout("The sandbox's agent did not answer in time."))
            self.stop()

    def _withdraw(self) -> None:
        future = self._future
        if future.cancelled() or not future.done():
            self.stop()
        elif future.exception() is None:  # the reply and the cancellation came in the same loop iteration
            self._dispose(future.result())


class PendingCall(SingleReply[Result]):
    """A request whose reply is decoded by a function."""

    def __init__(self, expected: ReplyKind, read: Callable[[Reader], Result]) -> None:
        super().__init__(expected)
        self._read = read

    def _decode(self, body: Reader) -> Result:
        return self._read(body)


class PatientCall(PendingCall[Result]):
    """A call whose reply comes when something happens inside."""

    open_ended = True


class HandedDescriptors(NamedTuple, Generic[Result]):
    value: Result
    descriptor: int
    link: AgentLink
    """The link on which a token in this reply is valid."""


class DescriptorCall(SingleReply[HandedDescriptors[Result]]):
    """A call whose reply brings a descriptor, which is closed if there is no waiter."""

    takes_descriptor = True

    def __init__(
        self,
        expected: ReplyKind,
        decode: Callable[[Reader, int], Result],
        release: Callable[[AgentLink, Result], None] | None = None,
    ) -> None:
        """``decode`` also gets the descriptor; ``release`` frees what else a reply without a waiter holds."""
        super().__init__(expected)
        self._decode_with = decode
        self._release = release
        self._descriptor: int | None = None

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        if (descriptor is None) is not (kind is ReplyKind.ERROR):
            _close(descriptor)
            raise ProtocolError(
                "The sandbox's agent sent a descriptor that was not announced, or announced one that it did not send."
            )
        self._descriptor = descriptor
        try:
            return super().receive(kind, body, descriptor)
        finally:
            _close(self._descriptor)
            self._descriptor = None

    def _decode(self, body: Reader) -> HandedDescriptors[Result]:
        if self._descriptor is None or self.link is None:
            raise ProtocolError("The sandbox's agent sent no descriptor.")
        return HandedDescriptors(self._decode_with(body, self._descriptor), self._descriptor, self.link)

    def _give(self, result: HandedDescriptors[Result]) -> None:
        self._descriptor = None
        super()._give(result)

    def _dispose(self, result: HandedDescriptors[Result]) -> None:
        os.close(result.descriptor)
        if self._release is not None:
            self._release(result.link, result.value)


class IgnoredReply(PendingRequest):
    """A request whose reply is ignored."""

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        if kind not in (ReplyKind.OK, ReplyKind.ERROR):
            raise _unexpected(kind)
        return True

    def fail(self, error: errors.PaddockError) -> None:
        pass


class ListPage(NamedTuple):
    entries: list[FileEntry]
    truncated: bool


class ListCall(SingleReply[ListPage]):
    """A LIST_DIR request: entries in several frames, within the requested limits."""

    open_ended = True
    max_bytes = 64 << 20

    def __init__(self, decode: Callable[[Reader], list[FileEntry]], most: int) -> None:
        super().__init__(ReplyKind.END)
        self._decode_entries = decode
        self._most = most
        self._entries: list[FileEntry] = []
        self._bytes = 0

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        if kind is not ReplyKind.ENTRIES:
            return super().receive(kind, body, descriptor)
        self._bytes += body.left
        found = self._decode_entries(body)
        body.end()
        if not self._future.done():
            self._entries += found
        if len(self._entries) > self._most or self._bytes > self.max_bytes:
            raise ProtocolError("The sandbox's agent listed more than it was asked for.")
        return False

    def _decode(self, body: Reader) -> ListPage:
        total, truncated = body.u32(), body.flag()
        if total != len(self._entries) and not self._future.done():
            raise ProtocolError("The sandbox's agent listed a different number of items than it announced.")
        return ListPage(self._entries, truncated)


class StreamCall(PendingRequest, Generic[Item]):
    """A request with many replies, consumed one by one by a single consumer."""

    open_ended = True

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Item] = deque()
        self._over = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def take(self) -> Item | None:
        """The next item; None at the end."""
        await give_turn()
        while not self._items:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.popleft()

    def taken(self) -> list[Item]:
        """All buffered items."""
        found = list(self._items)
        self._items.clear()
        if not found and self._error is not None:
            raise self._error
        return found

    def leave(self) -> None:
        """The consumer stops."""
        self._over = True
        self._items.clear()
        self.stop()

    def fail(self, error: Exception) -> None:
        if not self._over:
            self._error, self._over = error, True
            self._wake()

    def _put(self, item: Item) -> None:
        self._items.append(item)
        self._wake()

    def _finish(self) -> None:
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _unexpected(kind: ReplyKind) -> ProtocolError:
    return ProtocolError(f"The sandbox's agent answered {kind.name}, which is no answer to what it was asked.")


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
