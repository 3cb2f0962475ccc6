"""The state table, the four operations that move a sandbox between states, and the texts that say why.

An operation goes through its ``via`` state. A row in that state is the intent, written before the provider is called;
with it any server can finish the operation after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.models import State
from paddock.store.records import SandboxRow

NEXT: Mapping[State, frozenset[State]] = {
    State.CREATING: frozenset({State.RUNNING, State.DELETING}),
    State.RUNNING: frozenset({State.PAUSING, State.PAUSED, State.DELETING, State.FAILED}),
    State.PAUSING: frozenset({State.PAUSED, State.RUNNING, State.DELETING, State.FAILED}),
    State.PAUSED: frozenset({State.RESUMING, State.DELETING, State.FAILED}),
    State.RESUMING: frozenset({State.RUNNING, State.PAUSED, State.DELETING, State.FAILED}),
    State.DELETING: frozenset({State.DELETED}),
    State.DELETED: frozenset(),
    # Failed means that the provider reports no such machine. If it turns up again, it is adopted.
    State.FAILED: frozenset({State.RUNNING, State.PAUSED, State.DELETING}),
}


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    start: frozenset[State]
    """States in which the operation may begin."""
    via: State
    """The transitional state that records the intent."""
    done: State
    refused: State
    """The state after a definite refusal by the provider."""


CREATE = Operation("create", frozenset(), State.CREATING, State.RUNNING, State.DELETING)
PAUSE = Operation("pause", frozenset({State.RUNNING}), State.PAUSING, State.PAUSED, State.RUNNING)
RESUME = Operation("resume", frozenset({State.PAUSED}), State.RESUMING, State.RUNNING, State.PAUSED)
# Delete waits for no other operation: it may begin during another one, whose outcome is then void.
DELETE = Operation(
    "delete",
    frozenset({State.CREATING, State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING, State.FAILED}),
    State.DELETING,
    State.DELETED,
    State.DELETING,
)

OPERATIONS: Mapping[State, Operation] = {operation.via: operation for operation in (CREATE, PAUSE, RESUME, DELETE)}
"""Operations by their transitional state: the one that a row in that state is in the middle of."""


GONE = frozenset({State.DELETING, State.DELETED})
"""Deleted, or certain to be."""

SETTLED_ALIVE = frozenset({State.RUNNING, State.PAUSED})
"""There is a machine and no operation is under way."""


def unfinished(state: State) -> bool:
    return state in OPERATIONS


def check(old: State, new: State) -> None:
    """An unknown transition is a bug; raise before it is written."""
    if new not in NEXT[old]:
        raise AssertionError(f"the state table has no way from {old} to {new}")


def unfinished_text(sandbox: SandboxRow) -> str:
    return f"{OPERATIONS[sandbox.state].name} has not finished: "


def begun_because(sandbox: SandboxRow) -> str | None:
    """Why its transition was begun, without the error of a failed attempt."""
    return (sandbox.reason or "").partition(unfinished_text(sandbox))[0].strip() or None


def reason_of(cause: str) -> str | None:
    """The row's reason for an operation that this caused."""
    return {"timeout": "Its timeout expired.", "request": None}.get(cause, cause)
