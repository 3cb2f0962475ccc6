"""Pages of an owner's sandboxes, ordered by start time."""

from __future__ import annotations

from dataclasses import replace

from paddock.models import State
from paddock.store import deadlines, listing
from paddock.store.database import Store
from paddock.store.listing import ListingFilter
from paddock.store.records import Page


class SandboxListing:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: ListingFilter, *, newest_first: bool, cursor: str | None, limit: int) -> Page:
        async with self._store.read() as connection:
            found, next_cursor = await listing.page(
                connection, wanted, newest_first=newest_first, cursor=cursor, limit=limit
            )
            expires = await deadlines.next_of(connection, [sandbox.sandbox_id for sandbox in found])
        return Page(found, expires, next_cursor)

    async def running(self, wanted: ListingFilter) -> int:
        """How many sandboxes that match the filter are running, over all pages."""
        async with self._store.read() as connection:
            return await listing.count(connection, replace(wanted, states=(State.RUNNING,)))
