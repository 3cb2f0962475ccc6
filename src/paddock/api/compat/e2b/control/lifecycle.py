"""Fixed ends, and operations that tell whether it was they that did it: what E2B's clients mean by theirs.

The native operations answer "it is so now", whoever brought it about. Here the caller learns whether this very call
paused, woke or ended the sandbox; and a timeout is a moment that is set, not a span that every use begins anew.
"""

from __future__ import annotations

from dataclasses import replace

from paddock.accounts.accounts import Principal
from paddock.errors import SandboxFailed, SandboxGone, SandboxNotFound
from paddock.lifecycle.controller import SandboxView
from paddock.lifecycle.deadlines import due
from paddock.lifecycle.extension import LifecycleExtension
from paddock.lifecycle.states import DELETE, PAUSE, RESUME
from paddock.lifecycle.transitions import cannot
from paddock.models import State, TimeoutAction, TimeoutFrom
from paddock.server.context import ServerContext
from paddock.store import deadlines, sandboxes
from paddock.store.records import DeadlineKind, SandboxRow

_TRIES = 3


class E2BLifecycle(LifecycleExtension):
    async def connect(
        self,
        who: Principal,
        sandbox_id: str,
        seconds: int,
        *,
        keep_memory: bool = True,
        on_timeout: TimeoutAction | None = None,
    ) -> tuple[SandboxView, bool]:
        """Wake it, with an end ``seconds`` from now; or, where it runs already, put its end off but never forward.

        Also whether it was this call that woke it. ``keep_memory=False`` wakes it from its files alone.
        """
        if (sandbox := await self._alive(who, sandbox_id)).state is State.DELETING:
            raise cannot(sandbox, RESUME.name)  # at once: there is nothing to wait for
        for last_try in (*(False,) * (_TRIES - 1), True):
            if not keep_memory:
                await self._transitions.in_turn(sandbox_id, self._drop_memory)
            try:
                _, woken = await self._transitions.move(sandbox_id, RESUME)
            except SandboxFailed as error:
                raise SandboxNotFound.by_id(sandbox_id) from error
            seen = await self._put_end(sandbox_id, seconds, only_later=not woken, on_timeout=on_timeout)
            if seen is not None:
                return seen, woken
            if last_try:
                break  # somebody pauses it as often as we wake it
        raise SandboxNotFound.by_id(sandbox_id)

    async def extend(self, who: Principal, sandbox_id: str, seconds: int) -> None:
        """Put the end of a running sandbox off, never forward."""
        await self._alive(who, sandbox_id)
        if await self._put_end(sandbox_id, seconds, only_later=True) is None:
            raise SandboxNotFound.by_id(sandbox_id)

    async def set_end(self, who: Principal, sandbox_id: str, seconds: int) -> None:
        """Its end is so many seconds from now; with 0 it has come when this returns."""
        await self._alive(who, sandbox_id)
        seen = await self._put_end(sandbox_id, seconds, only_later=False)
        if seen is None:
            raise SandboxNotFound.by_id(sandbox_id)
        if seconds <= 0 and seen.expires is not None:
            await self._controller.expire_deadline(seen.expires)

    async def pause(self, who: Principal, sandbox_id: str, *, keep_memory: bool = True) -> bool:
        """False: it was paused already."""
        await self._alive(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        try:
            return (await self._transitions.move(sandbox_id, PAUSE, memory_kept=keep_memory))[1]
        except SandboxGone as error:  # somebody kills it
            raise SandboxNotFound.by_id(sandbox_id) from error

    async def kill(self, who: Principal, sandbox_id: str) -> bool:
        """False: there was nothing to end any more."""
        await self._controller.get(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        _, ended = await self._transitions.move(sandbox_id, DELETE)
        self._journal.forget(sandbox_id)
        return ended

    async def _alive(self, who: Principal, sandbox_id: str) -> SandboxRow:
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        if sandbox.state in {State.DELETED, State.FAILED}:
            raise SandboxNotFound.by_id(sandbox_id)
        return sandbox

    async def _put_end(
        self, sandbox_id: str, seconds: int, *, only_later: bool, on_timeout: TimeoutAction | None = None
    ) -> SandboxView | None:
        """None where it does not run: then it has no end to put anywhere."""
        async with self._store.write() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            now = self._clock.now()  # while nobody else writes: before it, the clock may have been set
            if sandbox is None or sandbox.state is not State.RUNNING:
                return None
            found = await deadlines.get(connection, sandbox_id, DeadlineKind.IDLE)
            action = on_timeout or sandbox.on_timeout
            due_at, warn_at = due(now, max(0, seconds))
            if only_later and found is not None and found.due_at >= due_at:
                return SandboxView(sandbox, found)
            await deadlines.put(connection, sandbox_id, DeadlineKind.IDLE, action, due_at, warn_at)
            changed = replace(sandbox, on_timeout=action)
            if sandbox.timeout_from is TimeoutFrom.ACTIVITY:
                # Its end moves with every use: the span is what has to be remembered.
                changed = replace(changed, timeout=max(1, seconds), last_activity_at=now)
            if changed != sandbox:
                names = ("on_timeout", "timeout", "last_activity_at")
                await sandboxes.patch(connection, sandbox_id, **{name: getattr(changed, name) for name in names})
            return SandboxView(changed, await deadlines.get(connection, sandbox_id, DeadlineKind.IDLE))


def lifecycle_of(context: ServerContext) -> E2BLifecycle:
    return context.extension(E2BLifecycle)
