"""Files over the agent, with the permissions of a user of the sandbox. Each reply is checked to be about the requested
path."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.connection import WORK_SECONDS, AgentConnection
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.flows import WatchCall
from paddock.machine.agent.link import AgentLink
from paddock.machine.agent.pending import ListCall, PendingCall
from paddock.machine.agent.replies import SMALLEST_ENTRY, FileEntry, read_attributes, read_entry
from paddock.machine.agent.wire import ProtocolError, Reader, ReplyKind, RequestKind, Writer, encoded, plain_path
from paddock.machine.base import ATTRIBUTES, FileChange, FileEvent, FileInfo, Watch
from paddock.sorting import sorted_in_slices

MAX_ENTRIES = 100_000
_NEW_DIRECTORY = 0o755
_MAYBE_SOURCE_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
_BATCH = 128
"""Files per request for attributes; the agent accepts no more."""
_MAX_LONG_REQUESTS = 16
"""Long-running requests at the same time; the agent has 32 workers for all clients."""


class AgentFiles:
    def __init__(self, line: AgentConnection) -> None:
        self._connection = line
        self._working = asyncio.Semaphore(_MAX_LONG_REQUESTS)

    async def stat(self, path: str, follow: bool, user: str) -> FileInfo:
        path = plain_path(path)
        return await self._entry(RequestKind.STAT, _about(user, path).u8(follow), path)

    async def chmod(self, path: str, mode: int, user: str) -> FileInfo:
        path = plain_path(path)
        return await self._entry(RequestKind.CHMOD, _about(user, path).u32(mode), path)

    async def resolve(self, path: str, user: str) -> FileInfo:
        path = plain_path(path)
        try:
            return await self._connection.call(
                RequestKind.RESOLVE, _about(user, path), lambda: PendingCall(ReplyKind.ENTRY, _any_entry), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None

    async def attributes(self, paths: Sequence[str], user: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for begin in range(0, len(paths), _BATCH):
            found += await self._attributes([plain_path(path) for path in paths[begin : begin + _BATCH]], user)
        return found

    async def _attributes(self, paths: Sequence[str], user: str) -> list[dict[str, str]]:
        payload = Writer().text(user).text(ATTRIBUTES).texts(paths)

        def decode(body: Reader) -> list[dict[str, str]]:
            answer = read_attributes(body)
            if len(answer) != len(paths):
                raise ProtocolError("The sandbox's agent told of more or fewer files than it was asked about.")
            return answer

        try:
            return await self._connection.call(
                RequestKind.ATTRIBUTES, payload, lambda: PendingCall(ReplyKind.ATTRIBUTES, decode), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, paths[0]) from None

    async def make_directory(self, path: str, user: str, owner: str | None) -> bool:
        path = plain_path(path)
        kind = RequestKind.MKDIR if owner is None else RequestKind.MKDIR_FOR
        payload = (_about(user, path) if owner is None else Writer().text(user).text(owner).text(path)).u32(
            _NEW_DIRECTORY
        )
        try:
            return await self._connection.call(
                kind, payload, lambda: PendingCall(ReplyKind.MADE, Reader.flag), again=False
            )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None

    async def list_directory(self, path: str, depth: int, user: str) -> list[FileInfo]:
        if depth < 1:
            raise errors.Invalid("depth must be at least 1")
        path = plain_path(path)
        payload = _about(user, path).u32(min(depth, 1 << 16)).u32(MAX_ENTRIES)
        below = _below(encoded(path))

        def begin() -> ListCall:
            return ListCall(lambda body: _entries(body, below), MAX_ENTRIES)

        try:
            async with self._working:
                found = await self._connection.call(
                    RequestKind.LIST_DIR, payload, begin, again=True, seconds=WORK_SECONDS
                )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None
        if found.truncated:
            raise errors.PayloadTooLarge(
                f"{path!r} has more than {MAX_ENTRIES} entries at this depth: list it in parts, or less deep.",
                details={"path": path[:1000]},
            )
        return await sorted_in_slices([entry.info for entry in found.entries], key=lambda info: info.path)

    async def move(self, source: str, destination: str, user: str) -> FileInfo:
        source, destination = plain_path(source), plain_path(destination)
        payload = _about(user, source).text(destination)
        try:
            async with self._working:
                return await self._connection.call(
                    RequestKind.MOVE,
                    payload,
                    lambda: PendingCall(ReplyKind.ENTRY, entry_of(destination)),
                    again=False,
                    seconds=WORK_SECONDS,
                )
        except AgentRefusal as refusal:
            if refusal.number == errno.EINVAL:
                raise errors.Invalid(f"{source!r} cannot be moved to {destination!r}: {refusal.message}.") from None
            if refusal.number in _MAYBE_SOURCE_ERRORS:
                await self.stat(source, False, user)  # raises if it is the source that is missing
            raise failures.of_path(refusal, destination) from None

    async def remove(self, path: str, recursive: bool, user: str) -> None:
        path = plain_path(path)
        payload = _about(user, path).u8(recursive)
        try:
            async with self._working:
                await self._connection.call(
                    RequestKind.REMOVE,
                    payload,
                    lambda: PendingCall(ReplyKind.OK, _nothing),
                    again=False,
                    seconds=WORK_SECONDS,
                )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None

    @asynccontextmanager
    async def watch(self, path: str, recursive: bool, user: str) -> AsyncIterator[Watch]:
        watch = _Watch(self._connection, plain_path(path), recursive, user)
        await watch.arm()
        try:
            yield watch
        finally:
            watch.leave()

    async def _entry(self, kind: RequestKind, payload: Writer, path: str) -> FileInfo:
        try:
            return await self._connection.call(
                kind, payload, lambda: PendingCall(ReplyKind.ENTRY, entry_of(path)), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, path) from None


class _Watch(Watch):
    def __init__(self, line: AgentConnection, path: str, recursive: bool, user: str) -> None:
        self._connection = line
        self._path = path
        self._payload = _about(user, path).u8(recursive)
        self._flow: WatchCall | None = None

    async def arm(self) -> None:
        async def begin(link: AgentLink) -> WatchCall:
            flow = WatchCall(encoded(self._path))
            link.begin(RequestKind.WATCH, self._payload, flow)
            await flow.arm(self._connection.reply_seconds)
            return flow

        try:
            self._flow = await self._connection.ask(begin, again=True)
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, self._path) from None

    async def __anext__(self) -> FileEvent:
        if self._flow is None:
            raise StopAsyncIteration
        try:
            event = await self._flow.take()
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, self._path) from None
        if event is not None:
            return event
        if not self._flow.overflowed:
            raise StopAsyncIteration
        return await self._again()

    async def settled(self) -> list[FileEvent]:
        """The agent sends all events it has seen before it replies to a PING, and its replies are ordered."""
        flow = self._flow
        if flow is None:
            return []
        if flow.link is not None:
            await flow.link.call(
                RequestKind.PING, Writer(), PendingCall(ReplyKind.OK, _nothing), self._connection.reply_seconds
            )
        try:
            found = flow.taken()
        except AgentRefusal as refusal:
            raise failures.of_path(refusal, self._path) from None
        return [*found, await self._again()] if flow.overflowed else found

    async def _again(self) -> FileEvent:
        """Events were lost: watch again, and report the directory itself as modified."""
        await self.arm()
        return FileEvent(encoded(self._path).decode(errors="replace"), FileChange.MODIFIED)

    def leave(self) -> None:
        if self._flow is not None:
            self._flow.leave()
            self._flow = None


def entry_of(path: str) -> Callable[[Reader], FileInfo]:
    """A decoder for an entry that must be the one of this path."""
    expected = encoded(path)

    def decode(body: Reader) -> FileInfo:
        entry = read_entry(body)
        if entry.path != expected:
            raise ProtocolError("The sandbox's agent answered about another file than asked for.")
        return entry.info

    return decode


def _any_entry(body: Reader) -> FileInfo:
    return read_entry(body).info


def _about(user: str, path: str) -> Writer:
    return Writer().text(user).text(path)


def _below(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"


def _entries(body: Reader, below: bytes) -> list[FileEntry]:
    found = [read_entry(body) for _ in range(body.count(SMALLEST_ENTRY))]
    if not all(entry.path.startswith(below) and len(entry.path) > len(below) for entry in found):
        raise ProtocolError("The sandbox's agent listed a file that is not below the directory asked for.")
    return found


def _nothing(body: Reader) -> None:
    """Decodes an empty reply."""
