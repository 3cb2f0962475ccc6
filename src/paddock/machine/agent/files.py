"""Files over the agent, with the rights of a user of the sandbox. An answer is about the path that was asked for."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.answers import SMALLEST_ENTRY, Entry, read_entry
from paddock.machine.agent.exchange import Call, Listing
from paddock.machine.agent.failures import Refusal
from paddock.machine.agent.flows import Watching
from paddock.machine.agent.line import WORK_SECONDS, Line
from paddock.machine.agent.link import Link
from paddock.machine.agent.paths import plain
from paddock.machine.agent.wire import Answer, ProtocolError, Reader, Request, Writer, encoded
from paddock.machine.base import FileChange, FileEvent, FileInfo

MAX_ENTRIES = 100_000
_NEW_DIRECTORY = 0o755
_OF_THE_SOURCE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
_AT_ONCE = 16
"""Long works of ours at the same time; the agent has 32 workers for everyone."""


class Files:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._working = asyncio.Semaphore(_AT_ONCE)

    async def stat(self, path: str, follow: bool, user: str) -> FileInfo:
        path = plain(path)
        return await self._entry(Request.STAT, _about(user, path).u8(follow), path)

    async def chmod(self, path: str, mode: int, user: str) -> FileInfo:
        path = plain(path)
        return await self._entry(Request.CHMOD, _about(user, path).u32(mode), path)

    async def make_directory(self, path: str, user: str) -> bool:
        path = plain(path)
        payload = _about(user, path).u32(_NEW_DIRECTORY)
        try:
            return await self._line.call(Request.MKDIR, payload, lambda: Call(Answer.MADE, Reader.flag), again=False)
        except Refusal as refusal:
            raise failures.of_path(refusal, path) from None

    async def list_directory(self, path: str, depth: int, user: str) -> list[FileInfo]:
        if depth < 1:
            raise errors.Invalid("depth must be at least 1")
        path = plain(path)
        payload = _about(user, path).u32(min(depth, 1 << 16)).u32(MAX_ENTRIES)
        below = _below(encoded(path))

        def begin() -> Listing:
            return Listing(lambda body: _entries(body, below), MAX_ENTRIES)

        try:
            async with self._working:
                found = await self._line.call(Request.LIST_DIR, payload, begin, again=True, seconds=WORK_SECONDS)
        except Refusal as refusal:
            raise failures.of_path(refusal, path) from None
        if found.truncated:
            raise errors.PayloadTooLarge(
                f"{path!r} has more than {MAX_ENTRIES} entries at this depth: list it in parts, or less deep.",
                details={"path": path[:1000]},
            )
        return sorted((entry.info for entry in found.entries), key=lambda info: info.path)

    async def move(self, source: str, destination: str, user: str) -> FileInfo:
        source, destination = plain(source), plain(destination)
        payload = _about(user, source).text(destination)
        try:
            async with self._working:
                return await self._line.call(
                    Request.MOVE,
                    payload,
                    lambda: Call(Answer.ENTRY, entry_of(destination)),
                    again=False,
                    seconds=WORK_SECONDS,
                )
        except Refusal as refusal:
            if refusal.number == errno.EINVAL:
                raise errors.Invalid(f"{source!r} cannot be moved to {destination!r}: {refusal.message}.") from None
            if refusal.number in _OF_THE_SOURCE:
                await self.stat(source, False, user)  # raises when it is the source that is missing
            raise failures.of_path(refusal, destination) from None

    async def remove(self, path: str, recursive: bool, user: str) -> None:
        path = plain(path)
        payload = _about(user, path).u8(recursive)
        try:
            async with self._working:
                await self._line.call(
                    Request.REMOVE, payload, lambda: Call(Answer.OK, _nothing), again=False, seconds=WORK_SECONDS
                )
        except Refusal as refusal:
            raise failures.of_path(refusal, path) from None

    @asynccontextmanager
    async def watch(self, path: str, recursive: bool, user: str) -> AsyncIterator[AsyncIterator[FileEvent]]:
        watch = _Watch(self._line, plain(path), recursive, user)
        await watch.arm()
        try:
            yield watch.events()
        finally:
            watch.leave()

    async def _entry(self, kind: Request, payload: Writer, path: str) -> FileInfo:
        try:
            return await self._line.call(kind, payload, lambda: Call(Answer.ENTRY, entry_of(path)), again=True)
        except Refusal as refusal:
            raise failures.of_path(refusal, path) from None


class _Watch:
    def __init__(self, line: Line, path: str, recursive: bool, user: str) -> None:
        self._line = line
        self._path = path
        self._payload = _about(user, path).u8(recursive)
        self._flow: Watching | None = None

    async def arm(self) -> None:
        async def begin(link: Link) -> Watching:
            flow = Watching(encoded(self._path))
            link.begin(Request.WATCH, self._payload, flow)
            await flow.arm(self._line.reply_seconds)
            return flow

        try:
            self._flow = await self._line.ask(begin, again=True)
        except Refusal as refusal:
            raise failures.of_path(refusal, self._path) from None

    async def events(self) -> AsyncIterator[FileEvent]:
        """Until the watched directory itself is gone."""
        while self._flow is not None:
            try:
                event = await self._flow.take()
            except Refusal as refusal:
                raise failures.of_path(refusal, self._path) from None
            if event is not None:
                yield event
            elif self._flow.overflowed:
                await self.arm()
                yield FileEvent(encoded(self._path).decode(errors="replace"), FileChange.MODIFIED)
            else:
                return

    def leave(self) -> None:
        if self._flow is not None:
            self._flow.leave()
            self._flow = None


def entry_of(path: str) -> Callable[[Reader], FileInfo]:
    """Reads an entry that must be the one of this path."""
    expected = encoded(path)

    def decode(body: Reader) -> FileInfo:
        entry = read_entry(body)
        if entry.path != expected:
            raise ProtocolError("The sandbox's agent answered about another file than asked for.")
        return entry.info

    return decode


def _about(user: str, path: str) -> Writer:
    return Writer().text(user).text(path)


def _below(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"


def _entries(body: Reader, below: bytes) -> list[Entry]:
    found = [read_entry(body) for _ in range(body.count(SMALLEST_ENTRY))]
    if not all(entry.path.startswith(below) and len(entry.path) > len(below) for entry in found):
        raise ProtocolError("The sandbox's agent listed a file that is not below the directory asked for.")
    return found


def _nothing(body: Reader) -> None:
    """An answer that says nothing but that it was done."""
