"""Bytes in flight: requests and answers that are held in memory until they are read, by whom, and how many at most.

Whoever asks for much and reads little would otherwise have the server hold it all. What streams holds a piece at a time
and counts as that; what must be whole is counted before it is built, and refused where the budget is used up.
"""

from __future__ import annotations

from collections import Counter

from paddock.errors import Overloaded, TooManyBytes
from paddock.memory import Hold

SMALL = 64 << 10
"""What is no larger is not counted: the number of connections bounds it."""
STREAM = 512 << 10
"""What a stream counts as: the piece that is on its way, and what waits behind it."""
_RETRY_SECONDS = 1.0


class ByteBudget:
    """Of one server. In memory, as what it counts is."""

    def __init__(self, in_all: int, per_user: int) -> None:
        """0 means no limit."""
        self.in_all = in_all
        self.per_user = per_user
        self.used = 0
        self._by_user: Counter[str] = Counter()

    def check(self, user_id: str, size: int) -> None:
        """Raises where there is not so much left."""
        mine = self._by_user.get(user_id, 0)
        if self.per_user and mine + size > self.per_user:
            raise TooManyBytes(
                f"Requests and answers of one user may hold {self.per_user} bytes of this server's memory at once; "
                f"{mine} are held, and {size} more are needed. Read the answers that are under way, or stream.",
                details={"limit": self.per_user, "held": mine, "wanted": size},
                retry_after=_RETRY_SECONDS,
            )
        if self.in_all and self.used + size > self.in_all:
            raise Overloaded(
                "This server holds as many bytes of requests and answers as it may. Try again in a moment.",
                details={"limit": self.in_all, "wanted": size},
                retry_after=_RETRY_SECONDS,
            )

    def of(self, user_id: str) -> Hold:
        """Holdings of this user that belong to no request."""

        def hold() -> Reservation:
            holding = Reservation(self)
            holding.belongs_to(user_id)
            return holding

        return hold

    def add(self, user_id: str, size: int) -> None:
        self.used += size
        self._by_user[user_id] += size
        if not self._by_user[user_id]:
            del self._by_user[user_id]


class Reservation:
    """What one request holds, from its first byte to the last of its answer."""

    __slots__ = ("_budget", "_user_id", "size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._user_id = ""
        self.size = 0

    def belongs_to(self, user_id: str) -> None:
        """From now on; before it is known, it is nobody's in particular."""
        if self.size and user_id != self._user_id:
            self._budget.add(self._user_id, -self.size)
            self._budget.add(user_id, self.size)
        self._user_id = user_id

    def reserve(self, size: int) -> None:
        """At least so much, if there is as much left. Raises TooManyBytes or Overloaded."""
        if size > SMALL and size > self.size:
            self._budget.check(self._user_id, size - self.size)
            self.extend(size)

    def try_reserve(self, size: int) -> bool:
        try:
            self.reserve(size)
        except (TooManyBytes, Overloaded):
            return False
        return True

    def extend(self, size: int) -> None:
        """At least so much, whatever is left: for an answer that has begun."""
        if size > SMALL and size > self.size:
            self._budget.add(self._user_id, size - self.size)
            self.size = size

    def release(self) -> None:
        if self.size:
            self._budget.add(self._user_id, -self.size)
            self.size = 0
