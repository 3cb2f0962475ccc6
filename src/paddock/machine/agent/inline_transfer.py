"""File contents over links that cannot pass descriptors: in chunks over the link, several in flight at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.connection import AgentConnection
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.files import AgentFiles, entry_of
from paddock.machine.agent.link import AgentLink
from paddock.machine.agent.pending import PendingCall
from paddock.machine.agent.transfer import IN_PLACE, MODE_AS_IT_IS, READ, REPLACE, blame_the_kind, open_request, release
from paddock.machine.agent.wire import Reader, ReplyKind, RequestKind, Writer, plain_path
from paddock.machine.base import FileInfo

_CHUNK_BYTES = 256 * 1024
_MAX_CHUNKS_IN_FLIGHT = 8
"""Chunks of one file in flight: enough for a high latency, few enough to hold in memory."""
_MAX_ALL_CHUNKS_IN_FLIGHT = 16
"""Chunks in flight for all files of a sandbox, so that the send queue stays bounded and small requests get through."""


class InlineTransfer:
    """Implements :class:`~paddock.machine.agent.transfer.Transfer` over any link."""

    def __init__(self, line: AgentConnection, files: AgentFiles) -> None:
        self._connection = line
        self._files = files
        self._room = asyncio.Semaphore(_MAX_ALL_CHUNKS_IN_FLIGHT)

    async def read(self, path: str, offset: int, limit: int | None, user: str) -> AsyncIterator[bytes]:
        if offset < 0 or (limit is not None and limit < 0):
            raise errors.Invalid("offset and limit must not be negative")
        path = plain_path(path)
        opened = await self._open(path, READ, MODE_AS_IT_IS, user)
        end = None if limit is None else offset + limit
        ahead: deque[_Asked] = deque()
        wanted = 1
        try:
            while True:
                while len(ahead) < wanted and (end is None or offset < end):
                    size = _CHUNK_BYTES if end is None else min(_CHUNK_BYTES, end - offset)
                    ahead.append(_Asked(offset, size, asyncio.create_task(self._read(opened, offset, size))))
                    offset += size
                if not ahead:
                    return
                asked = ahead.popleft()
                data = await asked.answer
                if not data:
                    return
                yield data
                wanted = min(wanted + 1, _MAX_CHUNKS_IN_FLIGHT)
                if len(data) < asked.size:  # end of file, or a file that returns short reads: continue from there
                    await _drop(ahead)
                    offset, wanted = asked.offset + len(data), 1
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None
        finally:
            await _drop(ahead)
            release(opened.home, opened.token)

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        mode: int | None,
        atomic: bool,
        user: str,
        owner: str | None,
        attributes: Mapping[str, str] | None,
    ) -> FileInfo:
        path = plain_path(path)
        how = REPLACE if atomic else IN_PLACE
        opened = await self._open(path, how, MODE_AS_IT_IS if mode is None else mode, user, owner, attributes)
        try:
            await self._pour(opened, chunks)
            call = PendingCall(ReplyKind.ENTRY, entry_of(path))
            return await opened.home.call(
                RequestKind.COMMIT, Writer().u32(opened.token), call, self._connection.reply_seconds
            )
        except AgentRefusal as refusal:
            release(opened.home, opened.token)
            raise failures.of_path(refusal, path) from None
        except BaseException:
            release(opened.home, opened.token)
            raise

    async def _pour(self, opened: _Opened, chunks: AsyncIterator[bytes]) -> None:
        under_way: deque[asyncio.Task[None]] = deque()
        offset = 0
        try:
            async for piece in _pieces(chunks):
                if len(under_way) >= _MAX_CHUNKS_IN_FLIGHT:
                    await under_way.popleft()
                under_way.append(asyncio.create_task(self._write(opened, offset, piece)))
                offset += len(piece)
            while under_way:
                await under_way.popleft()
        finally:
            await _cancel(under_way)

    async def _read(self, opened: _Opened, offset: int, size: int) -> bytes:
        payload = Writer().u32(opened.token).u64(offset).u32(size)
        call = PendingCall(ReplyKind.BYTES, lambda body: body.blob(size))
        async with self._room:
            return await opened.home.call(RequestKind.PREAD, payload, call, self._connection.reply_seconds)

    async def _write(self, opened: _Opened, offset: int, piece: bytes) -> None:
        payload = Writer().u32(opened.token).u64(offset).blob(piece)
        async with self._room:
            await opened.home.call(
                RequestKind.PWRITE, payload, PendingCall(ReplyKind.OK, _nothing), self._connection.reply_seconds
            )

    async def _open(
        self,
        path: str,
        how: int,
        mode: int,
        user: str,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> _Opened:
        request, payload = open_request(path, how, mode, user, owner, attributes)

        async def ask(link: AgentLink) -> _Opened:
            opened = _Opened(link, path)
            await link.call(request, payload, opened, self._connection.reply_seconds)
            return opened

        try:
            return await self._connection.ask(ask, again=True)
        except AgentRefusal as refusal:
            await blame_the_kind(refusal, self._files, path, user)
            raise failures.of_path(refusal, path) from None


class _Opened(PendingCall[int]):
    """A request to open a file; if its caller has given up, the file is closed again."""

    def __init__(self, home: AgentLink, path: str) -> None:
        super().__init__(ReplyKind.OPENED, self._read)
        self.home = home
        """The link on which its token is valid."""
        self.token = 0
        self._entry = entry_of(path)

    def _read(self, body: Reader) -> int:
        self.token = body.u32()
        self._entry(body)
        return self.token

    def _dispose(self, result: int) -> None:
        release(self.home, result)


class _Asked:
    __slots__ = ("answer", "offset", "size")

    def __init__(self, offset: int, size: int, answer: asyncio.Task[bytes]) -> None:
        self.offset, self.size, self.answer = offset, size, answer


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in chunks that fit a frame, as large as possible."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= _CHUNK_BYTES:
            yield bytes(held[:_CHUNK_BYTES])
            del held[:_CHUNK_BYTES]
    if held:
        yield bytes(held)


async def _drop(ahead: deque[_Asked]) -> None:
    await _cancel(deque(asked.answer for asked in ahead))
    ahead.clear()


async def _cancel(tasks: deque[asyncio.Task[None]] | deque[asyncio.Task[bytes]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _nothing(body: Reader) -> None:
    """Decodes an empty reply."""
