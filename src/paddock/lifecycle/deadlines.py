"""When a sandbox's deadlines expire, when to warn of them, and how long a failed action waits for its next attempt."""

from __future__ import annotations

from paddock.models import State, TimeoutAction, TimeoutFrom
from paddock.settings import Settings
from paddock.store.records import Deadline, DeadlineKind, SandboxRow

_MIN_TIMEOUT_AFTER_RESUME_S = 300
"""Minimum seconds that a sandbox with a fixed end has after a resume, so that the caller has time to set another end.
"""


_MAX_EXPONENT = 30
"""With larger exponents every sensible limit is reached already, and a float would overflow at 1024."""


def deadlines_of(settings: Settings, sandbox: SandboxRow, now: float, *, woken: bool = False) -> list[Deadline]:
    """The deadlines of a sandbox that enters its current state now."""

    def of(kind: DeadlineKind, action: TimeoutAction, due_at: float, warn_at: float | None = None) -> Deadline:
        return Deadline(sandbox.sandbox_id, kind, action, due_at, warn_at, generation=1, attempts=0)

    if sandbox.state is State.RUNNING:
        fixed = woken and sandbox.timeout_from is TimeoutFrom.START
        least = min(_MIN_TIMEOUT_AFTER_RESUME_S, settings.max_timeout) if fixed else 0
        found = [of(DeadlineKind.IDLE, sandbox.on_timeout, *due(now, max(sandbox.timeout, least)))]
        if sandbox.max_lifetime is not None:
            found.append(of(DeadlineKind.LIFETIME, sandbox.on_timeout, *due(now, sandbox.max_lifetime)))
    elif sandbox.state in {State.PAUSED, State.FAILED}:
        own = sandbox.retention if sandbox.state is State.PAUSED else None
        kept = settings.paused_retention if own is None else own
        found = [of(DeadlineKind.RETENTION, TimeoutAction.DELETE, now + kept)]
    else:
        return []
    if sandbox.ends_at is not None:
        found.append(of(DeadlineKind.END, TimeoutAction.DELETE, sandbox.ends_at))
    return found


def due(now: float, timeout: float) -> tuple[float, float | None]:
    """When a deadline expires, and when to warn of it.

    The warning comes 60 seconds, or a tenth of the timeout if that is less, before the end; none if it would be under a
    second.
    """
    ahead = min(60.0, timeout / 10)
    return now + timeout, (now + timeout - ahead) if ahead >= 1 else None


def backoff_seconds(attempts: int, longest: float) -> float:
    """Exponential backoff: 0 before the first failure, then 2, 4, 8 … up to ``longest``. Safe for any number of
    attempts read from a row."""
    return min(longest, 2.0 ** min(attempts, _MAX_EXPONENT)) if attempts > 0 else 0.0
