"""Fixed ends, and operations that tell whether it was they that did it: what E2B's clients mean by theirs.

The native operations answer "it is so now", whoever brought it about. Here the caller learns whether this very call
paused, woke or ended the sandbox; and a timeout is a moment that is set, not a span that every use begins anew.
"""

from __future__ import annotations

from paddock.accounts.accounts import Principal
from paddock.errors import SandboxFailed, SandboxGone, SandboxNotFound
from paddock.lifecycle.controller import SandboxView
from paddock.lifecycle.deadlines import due
from paddock.lifecycle.extension import LifecycleExtension
from paddock.lifecycle.states import DELETE, PAUSE, RESUME
from paddock.lifecycle.transitions import cannot
from paddock.models import State, TimeoutAction, TimeoutFrom
from paddock.server.context import ServerContext
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
        """Resume the sandbox with an end ``seconds`` from now; if it is running, extend its end, but never shorten it.

        Also tells whether this call resumed it. ``keep_memory=False`` resumes it from its files only.
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
        """Extend the end of a running sandbox; never shorten it."""
        await self._alive(who, sandbox_id)
        if await self._put_end(sandbox_id, seconds, only_later=True) is None:
            raise SandboxNotFound.by_id(sandbox_id)

    async def set_end(self, who: Principal, sandbox_id: str, seconds: int) -> None:
        """Set the end to so many seconds from now; with 0 the sandbox has ended when this returns."""
        await self._alive(who, sandbox_id)
        seen = await self._put_end(sandbox_id, seconds, only_later=False)
        if seen is None:
            raise SandboxNotFound.by_id(sandbox_id)
        if seconds <= 0 and seen.expires is not None:
            await self._controller.expire_deadline(seen.expires)

    async def pause(self, who: Principal, sandbox_id: str, *, keep_memory: bool = True) -> bool:
        """False if it was paused already."""
        await self._alive(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        try:
            return (await self._transitions.move(sandbox_id, PAUSE, memory_kept=keep_memory))[1]
        except SandboxGone as error:  # somebody kills it
            raise SandboxNotFound.by_id(sandbox_id) from error

    async def kill(self, who: Principal, sandbox_id: str) -> bool:
        """False if it was deleted already."""
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
        """None if the sandbox is not running, and so has no end."""
        async with self._edit(sandbox_id) as row:
            if row.sandbox.state is not State.RUNNING:
                return None
            found = await row.deadline(DeadlineKind.IDLE)
            action = on_timeout or row.sandbox.on_timeout
            due_at, warn_at = due(row.now, max(0, seconds))
            if only_later and found is not None and found.due_at >= due_at:
                return SandboxView(row.sandbox, found)
            await row.put_deadline(DeadlineKind.IDLE, action, due_at, warn_at)
            if row.sandbox.timeout_from is TimeoutFrom.ACTIVITY:
                # Its end moves with every use: the span is what has to be remembered.
                await row.set(on_timeout=action, timeout=max(1, seconds), last_activity_at=row.now)
            elif action is not row.sandbox.on_timeout:
                await row.set(on_timeout=action)
            return SandboxView(row.sandbox, await row.deadline(DeadlineKind.IDLE))


def lifecycle_of(context: ServerContext) -> E2BLifecycle:
    return context.extension(E2BLifecycle)
