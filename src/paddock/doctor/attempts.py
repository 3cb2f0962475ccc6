"""What an attempt is, what may come of one, and the catalogue as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from paddock.egress.policy import EgressMode

USERS = ("user", "root")
"""The sandbox's ordinary user, and its own root."""


class Verdict(StrEnum):
    REFUSED = "refused"
    NOT_REFUSED = "not refused"
    DOCUMENTED = "documented"
    """Not refused, as ``docs/security.md`` says of this kind of sandbox; the detail says why that is no way out."""
    NOT_TRIED = "not tried"
    """There was nothing to try it on; the detail says why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that a sandbox must refuse. ``paddock-probe`` knows how it is done."""

    name: str
    danger: str
    """What would have happened."""
    words: tuple[str, ...] = ()
    """Names of canaries, which the probe is given; those that begin with ``~`` are secrets."""
    users: tuple[str, ...] = USERS
    modes: tuple[EgressMode, ...] = (EgressMode.PROXY,)
    leaves: str | None = None
    """The canary that names a file which must not be found on the host afterwards."""


@dataclass(frozen=True, slots=True)
class Group:
    threat: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """An attempt by somebody, in one kind of sandbox."""

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
    """Of which sandboxes, where several kinds are tried."""


def cases(groups: tuple[Group, ...]) -> Iterator[Case]:
    for group in groups:
        for attempt in group.attempts:
            for mode in attempt.modes:
                for user in attempt.users:
                    yield Case(attempt, user, mode)
