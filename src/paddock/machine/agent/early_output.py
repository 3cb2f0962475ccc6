"""Keeps the output of commands that arrives with their start, so that a short command costs one round trip.

Only a complete prefix of what the agent sent is kept; as soon as there is a gap nothing is kept, and readers ask the
agent. Memory is limited per stream, per machine, in number and in time.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from paddock import errors
from paddock.machine.agent.pending import PendingRequest
from paddock.machine.agent.replies import read_data, read_process, read_refusal
from paddock.machine.agent.wire import ProtocolError, Reader, ReplyKind
from paddock.machine.base import OutputChunk, ProcessInfo, Stream

STREAM_LIMIT = 1 << 20
"""Bytes kept of each stream of a process."""
_TOTAL_LIMIT = 16 << 20
_MAX_RUNNING = 256
_MAX_ENDED = 64
_KEEP_ENDED = 5.0
_KEEP_RUNNING = 30.0


class EarlyOutput(PendingRequest):
    """A SPAWN request that follows: the process, its output, its end."""

    open_ended = True

    def __init__(self, process_id: str, tails: EarlyOutputs) -> None:
        super().__init__()
        self.process_id = process_id
        self.since = time.monotonic()
        self.ended: ProcessInfo | None = None
        self._tails = tails
        self._started: asyncio.Future[ProcessInfo] = asyncio.get_running_loop().create_future()
        self._begun = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._pieces: dict[Stream, list[bytes]] = {Stream.STDOUT: [], Stream.STDERR: []}
        self._sizes = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self.followed = True
        """False: no output is kept any more, and the end will not be reported here."""

    async def start(self, seconds: float) -> ProcessInfo:
        """The process, once it runs."""
        timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            return await self._started
        except asyncio.CancelledError:
            if not self._started.cancelled():
                self._started.exception()
            self.drop()
            raise
        finally:
            timer.cancel()

    async def end(self, seconds: float | None) -> ProcessInfo | None:
        """The process at its end. None if the timeout has passed, or if the agent has to be asked."""
        if self.ended is None and self.followed and (seconds is None or seconds > 0):
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            timer = None if seconds is None else loop.call_later(seconds, _release, waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
                if timer is not None:
                    timer.cancel()
        return self.ended

    def read(self, stream: Stream, offset: int, limit: int) -> OutputChunk | None:
        """Output of a process that has ended. None unless all of it is certain to be here."""
        if self.ended is None or not self.followed:
            return None
        size = self.ended.stdout_size if stream is Stream.STDOUT else self.ended.stderr_size
        if self._sizes[stream] != size:
            return None
        pieces = self._pieces[stream]
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        data = pieces[0] if pieces else b""
        return OutputChunk(stream, offset, data[offset : offset + limit] if offset or limit < size else data)

    @property
    def size(self) -> int:
        return self._sizes[Stream.STDOUT] + self._sizes[Stream.STDERR]

    def drop(self) -> None:
        """Discard what is kept. Waiters then have to ask the agent."""
        if not self.followed:
            return
        self.followed = False
        self._tails.forget(self)
        for pieces in self._pieces.values():
            pieces.clear()
        self.stop()
        self._wake()

    # Called by the link

    def receive(self, kind: ReplyKind, body: Reader, descriptor: int | None) -> bool:
        match kind:
            case ReplyKind.DATA:
                self._keep(read_data(body))
            case ReplyKind.PROCESS:
                self._begin(read_process(body, self.process_id))
                body.end()
            case ReplyKind.ENDED:
                self._finish(read_process(body, self.process_id))
                body.end()
                return True
            case ReplyKind.ERROR:
                refusal = read_refusal(body)
                self.link = None
                if not self._started.done():
                    self._started.set_exception(refusal)
                self.drop()
                return True
            case _:
                raise ProtocolError(f"The sandbox's agent answered {kind.name} to a command's start.")
        return False

    def fail(self, error: errors.PaddockError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
        self.drop()

    def _begin(self, info: ProcessInfo) -> None:
        if self._begun:
            raise ProtocolError("The sandbox's agent told the start of a process twice.")
        self._begun = True
        if not self._started.done():
            self._started.set_result(info)

    def _keep(self, chunk: OutputChunk) -> None:
        if not self.followed:
            return
        before = self._sizes[chunk.stream]
        if chunk.offset != before or before + len(chunk.data) > self._tails.stream_limit:
            self.drop()
        elif chunk.data:
            self._pieces[chunk.stream].append(chunk.data)
            self._sizes[chunk.stream] = before + len(chunk.data)
            self._tails.grew(self, len(chunk.data))

    def _finish(self, info: ProcessInfo) -> None:
        if info.running or not self._begun:
            raise ProtocolError("The sandbox's agent told the end of a process that has not ended, or not begun.")
        self.ended = info
        self._tails.ended(self)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _release(waiter)

    def _expire(self) -> None:
        if not self._started.done():
            self._started.set_exception(errors.ProviderTimeout("The sandbox did not start the command in time."))
            self.drop()


class EarlyOutputs:
    """The early outputs of one machine."""

    def __init__(self, spool_limit: int) -> None:
        # The agent's spool keeps at least half of its limit, so below that it still has everything kept here.
        self.stream_limit = min(STREAM_LIMIT, spool_limit // 2)
        self._running: dict[str, EarlyOutput] = {}
        self._ended: OrderedDict[str, EarlyOutput] = OrderedDict()
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None

    def get(self, process_id: str) -> EarlyOutput | None:
        if (tail := self._running.get(process_id)) is None and (tail := self._ended.get(process_id)) is not None:
            self._ended.move_to_end(process_id)
        return tail

    def begin(self, process_id: str) -> EarlyOutput | None:
        """A new one. None if there is one with this id, or too many."""
        if process_id in self._running or process_id in self._ended or len(self._running) >= _MAX_RUNNING:
            return None
        tail = self._running[process_id] = EarlyOutput(process_id, self)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEEP_ENDED, self._sweep)
        return tail

    def ended(self, tail: EarlyOutput) -> None:
        if self._running.get(tail.process_id) is tail:
            del self._running[tail.process_id]
            tail.since = time.monotonic()
            self._ended[tail.process_id] = tail
            if len(self._ended) > _MAX_ENDED:
                self._oldest().drop()

    def grew(self, tail: EarlyOutput, size: int) -> None:
        self._held += size
        while self._held > _TOTAL_LIMIT and self._ended:
            self._oldest().drop()
        if self._held > _TOTAL_LIMIT:
            tail.drop()

    def forget(self, tail: EarlyOutput) -> None:
        for kept in (self._running, self._ended):
            if kept.get(tail.process_id) is tail:
                del kept[tail.process_id]
        self._held -= tail.size

    def close(self) -> None:
        for tail in [*self._running.values(), *self._ended.values()]:
            tail.drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _oldest(self) -> EarlyOutput:
        return next(iter(self._ended.values()))

    def _sweep(self) -> None:
        now = time.monotonic()
        for tail in [*self._ended.values()]:
            if now - tail.since > _KEEP_ENDED:
                tail.drop()
        for tail in [*self._running.values()]:
            if now - tail.since > _KEEP_RUNNING:
                tail.drop()
        again = self._running or self._ended
        self._timer = asyncio.get_running_loop().call_later(_KEEP_ENDED, self._sweep) if again else None


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
