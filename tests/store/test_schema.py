"""The schema: what migrations make is what the tables say, on both databases."""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.engine import Connection

from paddock.store import migrations, sandboxes
from paddock.store.database import Store
from paddock.store.tables import metadata
from tests.support.rows import a_sandbox


async def test_migrations_make_exactly_the_tables(database_url: str) -> None:
    store = Store(database_url)
    await store.open()

    def differences(connection: Connection) -> list[object]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    async with store.read() as connection:
        assert await connection.run_sync(differences) == []
    await store.close()


def test_the_newest_migration_is_the_one_that_alembic_calls_head() -> None:
    config = Config()
    config.set_main_option("script_location", "paddock:store/migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == migrations.newest()


async def test_opening_twice_changes_nothing(database_url: str) -> None:
    for _ in range(2):
        store = Store(database_url)
        await store.open()
        await store.close()


async def test_sandboxes_from_before_egress_keep_their_rows_and_get_its_default(database_url: str) -> None:
    """A database of the first schema, with a sandbox in it, is opened by this version."""
    store = Store(database_url)
    await store.open()
    old = a_sandbox()
    async with store.write() as connection:
        await sandboxes.add(connection, old)
        await connection.run_sync(_to_first_schema)
    await store.close()
    await store.open()
    async with store.read() as connection:
        assert await sandboxes.get(connection, old.sandbox_id) == old
    await store.close()


def _to_first_schema(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "paddock:store/migrations")
    config.attributes["connection"] = connection
    command.downgrade(config, "0001")
    assert "egress" not in {column["name"] for column in inspect(connection).get_columns("sandboxes")}
