"""The schema: what migrations make is what the tables say, on both databases."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import Connection

from paddock.store.database import Store
from paddock.store.tables import metadata


async def test_migrations_make_exactly_the_tables(database_url: str) -> None:
    store = Store(database_url)
    await store.open()

    def differences(connection: Connection) -> list[object]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    async with store.read() as connection:
        assert await connection.run_sync(differences) == []
    await store.close()


async def test_opening_twice_changes_nothing(database_url: str) -> None:
    for _ in range(2):
        store = Store(database_url)
        await store.open()
        await store.close()
