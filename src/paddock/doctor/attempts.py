"""Escape attempts: their definition, their possible results, and the whole catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from paddock.egress.policy import EgressMode

USERS = ("user", "root")
"""The sandbox's ordinary user, and its root."""


class Verdict(StrEnum):
    REFUSED = "refused"
    NOT_REFUSED = "not refused"
    DOCUMENTED = "documented"
    """Not refused, as ``docs/security.md`` documents for this kind of sandbox; the detail says why it is harmless."""
    NOT_TRIED = "not tried"
    """Its target does not exist here; the detail says why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One action that a sandbox must refuse. ``paddock-probe`` implements it."""

    name: str
    danger: str
    """What a success would mean."""
    words: tuple[str, ...] = ()
    """Names of canaries passed to the probe; those with a leading ``~`` are secrets."""
    users: tuple[str, ...] = USERS
    modes: tuple[EgressMode, ...] = (EgressMode.PROXY,)
    leaves: str | None = None
    """Name of the canary whose file must not exist on the host afterwards."""


@dataclass(frozen=True, slots=True)
class Group:
    threat: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """An attempt by one user in one kind of sandbox."""

    attempt: Attempt
    user: str
    mode: EgressMode = EgressMode.PROXY

    @property
    def name(self) -> str:
        suffix = "" if self.mode is EgressMode.PROXY else f"-{self.mode.value}-egress"
        return f"{self.attempt.name}-by-{self.user}{suffix}"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    name: str
    user: str
    verdict: Verdict
    detail: str
    kind: str = ""
    """The kind of sandbox, if several are tested."""


def cases(groups: tuple[Group, ...]) -> Iterator[Case]:
    for group in groups:
        for attempt in group.attempts:
            for mode in attempt.modes:
                for user in attempt.users:
                    yield Case(attempt, user, mode)
