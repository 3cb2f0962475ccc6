"""Directory watchers that the client polls (``CreateWatcher``), and streaming watches.

A watcher costs a watch inside its sandbox and its unread events, whose number is limited there. It does not keep the
sandbox running. It exists in this server's memory: after a restart or on another server it is not found, and the client
creates a new one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from paddock import errors
from paddock.api.compat.e2b.envd.connect import Code, ConnectError, encode
from paddock.api.compat.e2b.envd.entries import describe_one
from paddock.api.compat.e2b.envd.fields import Fields
from paddock.api.compat.e2b.envd.inside import EnvdContext, resolved
from paddock.api.compat.e2b.envd.streaming import ServerStream, timeout_of
from paddock.api.compat.e2b.envd.users import ROOT
from paddock.machine.base import FileAct, FileEvent, Machine, Watch
from paddock.models import State

_KEEP_ALIVE = b'{"keepalive":{}}'
_TYPES = {
    FileAct.CREATE: "EVENT_TYPE_CREATE",
    FileAct.WRITE: "EVENT_TYPE_WRITE",
    FileAct.REMOVE: "EVENT_TYPE_REMOVE",
    FileAct.RENAME: "EVENT_TYPE_RENAME",
    FileAct.CHMOD: "EVENT_TYPE_CHMOD",
}
_THERE = frozenset({FileAct.CREATE, FileAct.WRITE, FileAct.CHMOD})
"""Event types after which the file exists."""
_PER_SANDBOX = 128
_PER_USER = 1000
"""Limit per user, so that one user cannot evict the watchers of others."""
_MAX_WATCHERS = 10_000


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to watch, and what to report."""

    path: str
    viewer: str
    """The user who reads file metadata."""
    recursive: bool
    include_entry: bool

    @classmethod
    async def of(cls, inside: EnvdContext, message: Fields) -> WatchRequest:
        account = await inside.account()
        path = resolved(account, message.text("path"))
        return cls(path, await inside.viewer(account), message.flag("recursive"), message.flag("includeEntry"))

    async def enter(self, stack: AsyncExitStack, machine: Machine) -> Watch:
        """The watch is active when this returns."""
        try:
            return await stack.enter_async_context(machine.watch(self.path, self.recursive, user=ROOT))
        except errors.PathNotFound:
            raise ConnectError(Code.NOT_FOUND, f"path '{self.path}' does not exist") from None
        except errors.PathConflict:
            raise ConnectError(Code.INVALID_ARGUMENT, f"path '{self.path}' is not a directory") from None

    async def documents(self, machine: Machine, events: list[FileEvent]) -> list[dict[str, Any]]:
        return [await self._document(machine, event) for event in events if event.path != self.path]

    async def _document(self, machine: Machine, event: FileEvent) -> dict[str, Any]:
        name = event.path.removeprefix(self.path.rstrip("/") + "/")
        document: dict[str, Any] = {"name": name, "type": _TYPES[event.done]}
        if self.include_entry and event.done in _THERE:
            try:
                document["entry"] = await describe_one(machine, event.path, self.viewer)
            except (errors.PathNotFound, errors.PathConflict, errors.PathDenied):
                return document  # deleted meanwhile; the event is reported without it
        return document


@dataclass(slots=True)
class Watcher:
    sandbox_id: str
    owner_id: str
    wish: WatchRequest
    watch: Watch
    stack: AsyncExitStack
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Watchers:
    def __init__(self) -> None:
        self._all: OrderedDict[str, Watcher] = OrderedDict()

    async def stream(self, inside: EnvdContext, message: Fields) -> None:
        source = self._source(inside, message)
        await ServerStream(inside, source, keep_alive=_KEEP_ALIVE).run(timeout_of(inside))

    async def create(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        wish = await WatchRequest.of(inside, message)
        await self._sweep(inside)
        sandbox = inside.sandbox
        if sum(watcher.sandbox_id == sandbox.sandbox_id for watcher in self._all.values()) >= _PER_SANDBOX:
            raise ConnectError(
                Code.RESOURCE_EXHAUSTED, f"this sandbox has {_PER_SANDBOX} watchers already: remove one first"
            )
        if sum(watcher.owner_id == sandbox.owner_id for watcher in self._all.values()) >= _PER_USER:
            raise ConnectError(
                Code.RESOURCE_EXHAUSTED, f"your sandboxes have {_PER_USER} watchers already: remove one first"
            )
        async with AsyncExitStack() as stack:
            watch = await wish.enter(stack, inside.machine)
            watcher_id = "w" + secrets.token_hex(8)
            self._all[watcher_id] = Watcher(sandbox.sandbox_id, sandbox.owner_id, wish, watch, stack.pop_all())
        if len(self._all) > _MAX_WATCHERS:
            await self._forget(next(iter(self._all)))
        return {"watcherId": watcher_id}

    async def events(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        """All events since the last call, including those of operations before this call."""
        watcher = self._find(inside, message)
        async with watcher.turn:
            try:
                seen = await watcher.watch.settled()
            except errors.Unavailable:  # the sandbox was restarted, or its connection lost
                await self._rearm(inside, watcher)
                seen = []
            return {"events": await watcher.wish.documents(inside.machine, seen)}

    async def remove(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        self._find(inside, message)
        await self._forget(message.text("watcherId"))
        return {}

    async def _sweep(self, inside: EnvdContext) -> None:
        """Each new watcher checks the two oldest, so that those of deleted sandboxes are removed."""
        for watcher_id, watcher in list(self._all.items())[:2]:
            row = await inside.context.row_cache.get(watcher.sandbox_id)
            if row is None or row.state is State.DELETED:
                await self._forget(watcher_id)
            else:
                self._all.move_to_end(watcher_id)

    def _find(self, inside: EnvdContext, message: Fields) -> Watcher:
        watcher_id = message.text("watcherId")
        found = self._all.get(watcher_id)
        if found is None or found.sandbox_id != inside.sandbox.sandbox_id:
            raise ConnectError(Code.NOT_FOUND, f"watcher with id {watcher_id} not found")
        return found

    async def _rearm(self, inside: EnvdContext, watcher: Watcher) -> None:
        await watcher.stack.aclose()
        async with AsyncExitStack() as stack:
            watcher.watch = await watcher.wish.enter(stack, inside.machine)
            watcher.stack = stack.pop_all()

    async def _forget(self, watcher_id: str) -> None:
        if (watcher := self._all.pop(watcher_id, None)) is not None:
            await watcher.stack.aclose()

    async def _source(self, inside: EnvdContext, message: Fields) -> AsyncGenerator[bytes, None]:
        wish = await WatchRequest.of(inside, message)
        async with AsyncExitStack() as stack:
            watch = await wish.enter(stack, inside.machine)
            yield b'{"start":{}}'
            async for event in watch:
                for document in await wish.documents(inside.machine, [event]):
                    yield encode({"filesystem": document})
            # The watched directory itself was deleted: no more events follow, but the client decides when to stop.
            await asyncio.Event().wait()
