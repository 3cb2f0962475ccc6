"""The one table of states, and the four operations that move a sandbox between them.

An operation goes through its ``via`` state: that row is the intent, written before the provider is called, and enough
for anybody to finish the work after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.models import State

NEXT: Mapping[State, frozenset[State]] = {
    State.CREATING: frozenset({State.RUNNING, State.DELETING}),
    State.RUNNING: frozenset({State.PAUSING, State.PAUSED, State.DELETING, State.FAILED}),
    State.PAUSING: frozenset({State.PAUSED, State.RUNNING, State.DELETING, State.FAILED}),
    State.PAUSED: frozenset({State.RESUMING, State.DELETING, State.FAILED}),
    State.RESUMING: frozenset({State.RUNNING, State.PAUSED, State.DELETING, State.FAILED}),
    State.DELETING: frozenset({State.DELETED}),
    State.DELETED: frozenset(),
    # Failed is what the provider says it does not have. Should it turn up again, it is taken back.
    State.FAILED: frozenset({State.RUNNING, State.PAUSED, State.DELETING}),
}


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    start: frozenset[State]
    """Where it may begin."""
    via: State
    """The intent."""
    done: State
    refused: State
    """Where a definite no of the provider leads."""


CREATE = Operation("create", frozenset(), State.CREATING, State.RUNNING, State.DELETING)
PAUSE = Operation("pause", frozenset({State.RUNNING}), State.PAUSING, State.PAUSED, State.RUNNING)
RESUME = Operation("resume", frozenset({State.PAUSED}), State.RESUMING, State.RUNNING, State.PAUSED)
# Delete waits for no other operation: it begins in the middle of one too, whose outcome is then void.
DELETE = Operation(
    "delete",
    frozenset({State.CREATING, State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING, State.FAILED}),
    State.DELETING,
    State.DELETED,
    State.DELETING,
)

OPERATIONS: Mapping[State, Operation] = {operation.via: operation for operation in (CREATE, PAUSE, RESUME, DELETE)}
"""By the state that they go through: the operation that such a row is in the middle of."""


GONE = frozenset({State.DELETING, State.DELETED})
"""Deleted, or certain to be."""

SETTLED_ALIVE = frozenset({State.RUNNING, State.PAUSED})
"""There is a machine, and nobody is at work on it."""


def unfinished(state: State) -> bool:
    return state in OPERATIONS


def check(old: State, new: State) -> None:
    """A move that the table does not know is a defect of ours, caught before it is written."""
    if new not in NEXT[old]:
        raise AssertionError(f"the state table has no way from {old} to {new}")
