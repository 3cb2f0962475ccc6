"""Stopping, archiving and ending by themselves, as Daytona's clients ask for it.

Their intervals are minutes. A sandbox that nobody uses for its *auto-stop* interval is stopped (its files stay, its
memory does not), for its *auto-pause* interval is paused (both stay); it is deleted when it has been stopped for its
*auto-delete* interval, and at the end of its *time to live* whatever it does. All of this is columns of its row and the
deadlines of its state, so it holds after a restart, and whichever server is up carries it out.

*Archived* is what a stopped sandbox is called once that was asked for, or its *auto-archive* interval has passed. Here
its files stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from paddock.accounts.accounts import Principal
from paddock.errors import Conflict, Invalid, SandboxNotFound
from paddock.lifecycle.creation import NEVER
from paddock.lifecycle.extension import LifecycleExtension
from paddock.lifecycle.states import DELETE, PAUSE, RESUME
from paddock.models import State, TimeoutAction
from paddock.server.context import ServerContext
from paddock.settings import Settings
from paddock.store.records import DeadlineKind, SandboxRow

MAX_AUTO_ARCHIVE = 30 * 24 * 60
_MINUTE = 60
_MAX_MINUTES = NEVER // _MINUTE
_GONE = frozenset({State.DELETING, State.DELETED})


@dataclass(frozen=True, slots=True)
class Intervals:
    """What a Daytona client has set, as stored with the row."""

    auto_stop: int = 15
    auto_pause: int = 0
    auto_archive: int = 7 * 24 * 60
    auto_delete: int = -1
    target: str = ""
    user: str = ""
    """As whom its commands run; empty: the usual one."""
    snapshot: str | None = None
    archived_at: float | None = None
    keys_rotated: int = 0
    """How often the key that file URLs are signed with was replaced."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that were set after it was made."""
    unset: tuple[str, ...] = ()
    ended_links: Mapping[str, float] = field(default_factory=dict)
    """Links that were called back before their time, and when that would have been."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def columns(self) -> dict[str, Any]:
        """The lifecycle's columns that these intervals lead to."""
        minutes = self.auto_pause or self.auto_stop
        ephemeral = self.auto_delete == 0 and not self.auto_pause
        return {
            "timeout": minutes * _MINUTE if minutes else NEVER,
            "on_timeout": TimeoutAction.DELETE if ephemeral else TimeoutAction.PAUSE,
            "keep_memory": self.auto_pause > 0,
            "retention": NEVER if self.auto_delete < 0 else self.auto_delete * _MINUTE,
            "facade_settings": self.to_json(),
        }

    def checked(self, settings: Settings) -> Intervals:
        for name in ("auto_stop", "auto_pause", "auto_archive"):
            if getattr(self, name) < 0:
                raise Invalid(f"The {name.replace('_', '-')} interval must be a non-negative integer, in minutes.")
        longest = settings.max_timeout // _MINUTE
        if max(self.auto_stop, self.auto_pause) > longest:
            raise Invalid(
                f"An auto-stop or auto-pause interval may be at most {longest} minutes here; 0 turns it off.",
                details={"max": longest},
            )
        if self.auto_stop and self.auto_pause:
            raise Invalid("Auto-stop and auto-pause exclude each other: set at most one of them to more than 0.")
        if self.auto_pause and self.auto_delete == 0:
            raise Invalid("Ephemeral sandboxes cannot have auto-pause enabled. Set the auto-pause interval to 0.")
        if max(self.auto_archive, self.auto_delete) > _MAX_MINUTES:
            raise Invalid(f"An interval may be at most {_MAX_MINUTES} minutes.")
        return self


def intervals_of(sandbox: SandboxRow) -> Intervals:
    """The stored intervals; for a sandbox created otherwise, those that its timeout corresponds to."""
    if sandbox.facade_settings is not None:
        known = {each.name for each in fields(Intervals)}
        kept = {name: value for name, value in sandbox.facade_settings.items() if name in known}
        return Intervals(**{**kept, "unset": tuple(kept.get("unset", ()))})
    minutes = 0 if sandbox.timeout >= NEVER else max(1, round(sandbox.timeout / _MINUTE))
    pauses = sandbox.on_timeout is TimeoutAction.PAUSE and sandbox.keep_memory
    return Intervals(
        auto_stop=0 if pauses else minutes,
        auto_pause=minutes if pauses else 0,
        auto_delete=0 if sandbox.on_timeout is TimeoutAction.DELETE else -1,
    )


class DaytonaLifecycle(LifecycleExtension):
    """Stop, start and archive, on request and after intervals."""

    async def find(self, who: Principal, id_or_name: str) -> SandboxRow:
        """By key, or by the name that the caller gave it. A deleted sandbox has neither."""
        try:
            found: SandboxRow | None = await self._controller.by_key(id_or_name)
        except SandboxNotFound:
            found = None
        if found is None and "\0" not in id_or_name:
            found = await self._controller.by_name(who, id_or_name)
        if found is None or found.state is State.DELETED or not (who.is_admin or found.owner_id == who.user_id):
            raise SandboxNotFound(f"Sandbox with ID or name {id_or_name[:200]} not found")
        return found

    async def stop(self, who: Principal, sandbox_id: str) -> SandboxRow:
        """Keeps files, drops memory; an ephemeral sandbox is deleted."""
        sandbox = await self._alive(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        if sandbox.retention == 0:
            await self._controller.delete(who, sandbox_id)
            return replace(sandbox, state=State.DELETED)
        if sandbox.state is State.PAUSED and sandbox.memory_kept:
            return await self._transitions.in_turn(sandbox_id, self._drop_memory)
        return await self._transitions.reach(sandbox_id, PAUSE, memory_kept=False)

    async def pause(self, who: Principal, sandbox_id: str) -> SandboxRow:
        """Keeps files and memory."""
        await self._alive(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        return await self._transitions.reach(sandbox_id, PAUSE, memory_kept=True)

    async def start(self, who: Principal, sandbox_id: str) -> SandboxRow:
        sandbox = await self._alive(who, sandbox_id)
        if sandbox.state is State.FAILED:
            await self._transitions.compare(sandbox_id)
        started = await self._transitions.reach(sandbox_id, RESUME)
        if intervals_of(started).archived_at is None:
            return started
        return await self.change(who, sandbox_id, lambda known: replace(known, archived_at=None))

    async def archive(self, who: Principal, sandbox_id: str) -> SandboxRow:
        sandbox = await self._alive(who, sandbox_id)
        if sandbox.state is not State.PAUSED:
            raise Conflict("Only a stopped sandbox can be archived. Stop it first.")
        if sandbox.memory_kept:
            await self.stop(who, sandbox_id)
        return await self.change(who, sandbox_id, lambda known: replace(known, archived_at=self._clock.now()))

    async def delete(self, who: Principal, sandbox_id: str) -> SandboxRow:
        sandbox = await self._alive(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        deleted, _ = await self._transitions.move(sandbox.sandbox_id, DELETE)
        self._journal.forget(sandbox_id)
        return deleted

    async def touch(self, who: Principal, sandbox_id: str) -> None:
        """Restart the auto-stop interval, as by use. Does not resume the sandbox."""
        sandbox = await self._alive(who, sandbox_id)
        if sandbox.state is State.RUNNING:
            await self._journal.touch(sandbox, now=True)

    async def set_ttl(self, who: Principal, sandbox_id: str, minutes: int) -> SandboxRow:
        """Counted from the create; 0 turns it off."""
        if not 0 <= minutes <= _MAX_MINUTES:
            raise Invalid("The time to live must be a non-negative integer, in minutes.")
        sandbox = await self._alive(who, sandbox_id)
        ends_at = sandbox.created_at + minutes * _MINUTE if minutes else None
        return await self._write(sandbox_id, lambda _: {"ends_at": ends_at})

    async def set_labels(self, who: Principal, sandbox_id: str, labels: Mapping[str, str]) -> SandboxRow:
        await self._alive(who, sandbox_id)
        return await self._write(sandbox_id, lambda _: {"metadata": dict(labels)})

    async def set_public(self, who: Principal, sandbox_id: str, public: bool) -> SandboxRow:
        await self._alive(who, sandbox_id)
        return await self._write(sandbox_id, lambda _: {"public_ports": public})

    async def change(self, who: Principal, sandbox_id: str, how: Callable[[Intervals], Intervals]) -> SandboxRow:
        """Set intervals or other stored settings. Intervals count from the last use, or from the stop."""
        await self._alive(who, sandbox_id)

        def columns(sandbox: SandboxRow) -> dict[str, Any]:
            before = intervals_of(sandbox)
            after = how(before).checked(self._settings)
            changed = after.columns()
            if sandbox.facade_settings is None and _same_times(before, after):
                # Made otherwise, with a timeout that no number of minutes says: only what was asked for changes.
                return {"facade_settings": changed["facade_settings"]}
            return changed

        return await self._write(sandbox_id, columns)

    async def _write(self, sandbox_id: str, columns: Callable[[SandboxRow], Mapping[str, Any]]) -> SandboxRow:
        """Write the row and the deadlines that follow from it, in one transaction."""
        async with self._edit(sandbox_id) as row:
            before = row.sandbox
            if before.state in _GONE:
                raise SandboxNotFound.by_id(sandbox_id)
            await row.set(**columns(before))
            since = before.state_changed_at
            if before.state is State.RUNNING:
                since = max(since, before.last_activity_at, self._journal.last_written(sandbox_id))
            for each in self._engine.deadlines_of(row.sandbox, since):
                known = await row.deadline(each.kind)
                if known is None or (known.due_at, known.action) != (each.due_at, each.action):
                    await row.put_deadline(each.kind, each.action, each.due_at, each.warn_at)
            if row.sandbox.ends_at is None and before.ends_at is not None:
                await row.remove_deadline(DeadlineKind.END)
            return row.sandbox

    async def _alive(self, who: Principal, sandbox_id: str) -> SandboxRow:
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        if sandbox.state is State.DELETED:
            raise SandboxNotFound.by_id(sandbox_id)
        return sandbox


def _same_times(before: Intervals, after: Intervals) -> bool:
    names = ("auto_stop", "auto_pause", "auto_delete")
    return all(getattr(before, name) == getattr(after, name) for name in names)


def lifecycle_of(context: ServerContext) -> DaytonaLifecycle:
    return context.extension(DaytonaLifecycle)
