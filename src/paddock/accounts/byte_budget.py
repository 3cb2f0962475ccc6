"""Memory budget for requests and responses in flight, per user and for the whole server.

Without it a client that requests much and reads little would make the server buffer everything. A stream holds one
chunk at a time and is counted as a constant; a body that must be whole is counted before it is built, and refused if
the budget is used up.
"""

from __future__ import annotations

from collections import Counter

from paddock.errors import Overloaded, TooManyBytes
from paddock.memory import Hold

SMALL = 64 << 10
"""Smaller bodies are not counted: the number of connections bounds them."""
STREAM = 512 << 10
"""Bytes counted for a stream: the chunk being sent and what is buffered behind it."""
_RETRY_AFTER_S = 1.0


class ByteBudget:
    """The budget of one server process, kept in memory."""

    def __init__(self, in_all: int, per_user: int) -> None:
        """``in_all``: limit in bytes for all users together. ``per_user``: limit for each. 0 means no limit."""
        self.in_all = in_all
        self.per_user = per_user
        self.used = 0
        self._by_user: Counter[str] = Counter()

    def check(self, user_id: str, size: int) -> None:
        """Raises TooManyBytes or Overloaded if fewer than ``size`` bytes are left."""
        mine = self._by_user.get(user_id, 0)
        if self.per_user and mine + size > self.per_user:
            raise TooManyBytes(
                f"Requests and answers of one user may hold {self.per_user} bytes of this server's memory at once; "
                f"{mine} are held, and {size} more are needed. Read the answers that are under way, or stream.",
                details={"limit": self.per_user, "held": mine, "wanted": size},
                retry_after=_RETRY_AFTER_S,
            )
        if self.in_all and self.used + size > self.in_all:
            raise Overloaded(
                "This server holds as many bytes of requests and answers as it may. Try again in a moment.",
                details={"limit": self.in_all, "wanted": size},
                retry_after=_RETRY_AFTER_S,
            )

    def of(self, user_id: str) -> Hold:
        """A factory of reservations for this user that belong to no request."""

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
    """Bytes that one request holds, from its first byte to the last byte of its response."""

    __slots__ = ("_budget", "_user_id", "size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._user_id = ""
        self.size = 0

    def belongs_to(self, user_id: str) -> None:
        """Charge this reservation to the user from now on. Before authentication it counts for no user in
        particular."""
        if self.size and user_id != self._user_id:
            self._budget.add(self._user_id, -self.size)
            self._budget.add(user_id, self.size)
        self._user_id = user_id

    def reserve(self, size: int) -> None:
        """Grow the reservation to at least ``size`` bytes. Raises TooManyBytes or Overloaded if the budget does not
        allow it."""
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
        """Grow the reservation to at least ``size`` bytes whatever is left: for a response that has already begun."""
        if size > SMALL and size > self.size:
            self._budget.add(self._user_id, size - self.size)
            self.size = size

    def release(self) -> None:
        if self.size:
            self._budget.add(self._user_id, -self.size)
            self.size = 0
