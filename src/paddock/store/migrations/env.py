"""Alembic's entry: migrations run on the connection that the store hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from paddock.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
