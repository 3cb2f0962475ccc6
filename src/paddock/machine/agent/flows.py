"""The two streaming replies: output of a process, and file changes. A slow consumer costs a bounded amount of
memory."""

from __future__ import annotations

import asyncio
import errno
import sys

from paddock import errors
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.pending import StreamCall
from paddock.machine.agent.replies import read_data, read_event, read_process, read_refusal
from paddock.machine.agent.wire import MAX_DATA, ProtocolError, Reader, ReplyKind
from paddock.machine.base import FileChange, FileEvent, OutputChunk, ProcessInfo, Stream

WINDOW = 128 * 1024
"""Maximum bytes buffered here per follower."""
_MAX_BYTES = 1 << 20
"""The same for an agent without windows."""
_CHUNK_BYTES = 100
"""Size of a chunk of output without its content: an agent may send it byte by byte."""
_MAX_EVENTS = 10_000
_MAX_EVENTS_BYTES = 512 * 1024
"""Maximum bytes of events buffered here; a path may have four kilobytes."""
_EVENT_BYTES = 100
"""Size of an event without its path."""


class FollowCall(StreamCall[OutputChunk]):
    """A FOLLOW request. The agent sends at most one window ahead of what was consumed.

    An agent without windows sends everything at once: when too much is buffered the request is cancelled, and the
    consumer starts a new one at the offset it has reached.
    """

    def __init__(self, process_id: str, stdout_offset: int, stderr_offset: int, *, windowed: bool) -> None:
        super().__init__()
        self.ended: ProcessInfo | None = None
        """The ended process, if all of its output was delivered. None: another flow has to continue."""
        self._process_id = process_id
        self._reached = {Stream.STDOUT: stdout_offset, Stream.STDERR: stderr_offset}
        self._windowed = windowed
        self._waiting = 0
        self._taken = 0
        """Consumed bytes of the window that the agent was not told of yet."""

    async def take(self) -> OutputChunk | None:
        chunk = await super().take()
        if chunk is not None:
            chunk = self._joined(chunk)
            self._waiting -= len(chunk.data)
            self._taken += len(chunk.data)
            if self._windowed and self.link is not None and self._taken >= WINDOW // 4:
                self.link.widen(self, self._taken)
                self._taken = 0
        return chunk

    def _joined(self, first: OutputChunk) -> OutputChunk:
        """Merge consecutive buffered chunks: a consumer slower than the process gets few large ones."""
        pieces, size = [first.data], len(first.data)
        while self._items:
            following = self._items[0]
            if following.stream is not first.stream or following.offset != first.offset + size:
                break
            if size + len(following.data) > MAX_DATA:
                break
            size += len(following.data)
            pieces.append(self._items.popleft().data)
        return first if len(pieces) == 1 else OutputChunk(first.stream, first.offset, b"".join(pieces))

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        match kind:
            case ReplyKind.DATA:
                self._add(read_data(body))
                return False
            case ReplyKind.ENDED:
                info = read_process(body, self._process_id)
                body.end()
                if info.running:
                    raise ProtocolError("The sandbox's agent told the end of a process that has not ended.")
                if not self._over:
                    self.ended = info
                    self._finish()
            case ReplyKind.ERROR:
                self.fail(read_refusal(body))
            case _:
                raise ProtocolError(f"The sandbox's agent answered {kind.name} to one who follows a process.")
        return True

    def _add(self, chunk: OutputChunk) -> None:
        if chunk.offset < self._reached[chunk.stream]:
            raise ProtocolError("The sandbox's agent sent the same output twice.")
        self._reached[chunk.stream] = chunk.end
        if self._over or not chunk.data:
            return
        self._waiting += len(chunk.data)
        if self._windowed and self._waiting > WINDOW:
            raise ProtocolError("The sandbox's agent sent more output than it was allowed to.")
        self._put(chunk)
        if self._waiting + _CHUNK_BYTES * len(self._items) > _MAX_BYTES:
            self._finish()
            self.stop()


class SpawnCall(FollowCall):
    """A SPAWN request that follows: the process comes before its output."""

    def __init__(self, process_id: str, *, windowed: bool) -> None:
        super().__init__(process_id, 0, 0, windowed=windowed)
        self._started: asyncio.Future[ProcessInfo] = asyncio.get_running_loop().create_future()

    async def start(self, seconds: float) -> ProcessInfo:
        """The process, once it runs."""
        timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            return await self._started
        except asyncio.CancelledError:
            if not self._started.cancelled():
                self._started.exception()
            self.leave()
            raise
        finally:
            timer.cancel()

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        if kind is ReplyKind.PROCESS:
            if self._started.done() and not self._over:
                raise ProtocolError("The sandbox's agent told the start of a process twice.")
            info = read_process(body, self._process_id)
            body.end()
            if not self._started.done():
                self._started.set_result(info)
            return False
        if kind is not ReplyKind.ERROR and not self._started.done():
            raise ProtocolError("The sandbox's agent told the end of a process that has not begun.")
        return super().receive(kind, body, descriptor)

    def fail(self, error: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(error)
        super().fail(error)

    def _expire(self) -> None:
        if not self._started.done():
            self._started.set_exception(errors.ProviderTimeout("The sandbox did not start the command in time."))
            self.leave()


class WatchCall(StreamCall[FileEvent]):
    """A WATCH request. If too many events are buffered, they become one: the directory itself was changed."""

    def __init__(self, path: bytes) -> None:
        super().__init__()
        self._armed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready = False
        self.overflowed = False
        """The agent has lost events, and has ended the watch."""
        self._path = path
        self._below = path.rstrip(b"/") + b"/"
        self._held = 0
        self._lost = False
        """Whether events were dropped; they are replaced by a single one at the end."""

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        match kind:
            case ReplyKind.OK if not self._ready:
                body.end()
                self._ready = True
                if not self._armed.done():
                    self._armed.set_result(None)
            case ReplyKind.EVENT if self._ready:
                self._note(*read_event(body))
            case ReplyKind.ERROR:
                self._refuse(read_refusal(body))
                return True
            case _:
                raise ProtocolError(f"The sandbox's agent answered {kind.name} to one who watches.")
        return False

    def fail(self, error: Exception) -> None:
        if not self._armed.done():
            self._armed.set_exception(error)
        super().fail(error)

    async def arm(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            await self._armed
        except asyncio.CancelledError:
            if self._armed.done() and not self._armed.cancelled():
                self._armed.exception()
            self.leave()
            raise
        finally:
            timer.cancel()

    def _note(self, path: bytes, event: FileEvent) -> None:
        if path != self._path and not path.startswith(self._below):
            raise ProtocolError("The sandbox's agent told of a file that is not watched.")
        if self._over:
            return
        if not self._items:
            self._held, self._lost = 0, False
        if self._lost:
            return
        self._held += _EVENT_BYTES + sys.getsizeof(event.path)
        self._lost = len(self._items) >= _MAX_EVENTS or self._held > _MAX_EVENTS_BYTES
        self._put(FileEvent(self._path.decode(errors="replace"), FileChange.MODIFIED) if self._lost else event)

    async def take(self) -> FileEvent | None:
        event = await super().take()
        if event is not None:
            self._held -= _EVENT_BYTES + sys.getsizeof(event.path)
        return event

    def _refuse(self, refusal: AgentRefusal) -> None:
        if self._ready and refusal.number in (errno.ENOENT, errno.EOVERFLOW):
            self.overflowed = refusal.number == errno.EOVERFLOW
            self._finish()
        else:
            self.fail(refusal)

    def _expire(self) -> None:
        if not self._armed.done():
            self._armed.set_exception(errors.ProviderTimeout("The sandbox's agent did not answer in time."))
            self.leave()
