"""What is held for one user for a while, by those who do not know of users: they say how much, and when it is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class MemoryReservation(Protocol):
    """A ``Holding`` of the server's byte budget, seen from below."""

    def reserve(self, size: int) -> None:
        """At least so much. Raises where there is not so much left."""

    def release(self) -> None:
        """Nothing is held any more."""


class _Unlimited:
    def reserve(self, size: int) -> None: ...

    def release(self) -> None: ...


Hold = Callable[[], MemoryReservation]


def unlimited() -> MemoryReservation:
    """Where this process serves one user alone."""
    return _Unlimited()
