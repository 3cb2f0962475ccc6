"""Who may open a sandbox's ports, what wakes it, ends that use does not push out; answers kept by idempotency key"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ALIVE = sa.text("state != 'deleted'")


def upgrade() -> None:
    # With defaults for the rows that are there already: neither database rewrites the table for that.
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("timeout_from", sa.Text(), nullable=False, server_default="activity"))
        batch_op.add_column(sa.Column("auto_resume", sa.Boolean(), nullable=False, server_default=sa.true()))
        batch_op.add_column(sa.Column("public_ports", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.add_column(sa.Column("host_mask", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("keep_memory", sa.Boolean(), nullable=False, server_default=sa.true()))
        batch_op.add_column(sa.Column("memory_kept", sa.Boolean(), nullable=False, server_default=sa.true()))
        batch_op.add_column(sa.Column("alias", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("network", sa.JSON(), nullable=True))
        batch_op.create_index(
            "ix_sandboxes_alive_started",
            ["owner_id", "started_at", "sandbox_id"],
            unique=False,
            sqlite_where=_ALIVE,
            postgresql_where=_ALIVE,
        )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.add_column(sa.Column("answer", sa.JSON(), nullable=True))
    op.create_table(
        "services",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("cwd", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("ready_path", sa.Text(), nullable=True),
        sa.Column("ready_timeout", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "name", name=op.f("pk_services")),
    )
    op.create_index("ix_services_sandbox_id_port", "services", ["sandbox_id", "port"], unique=True)


def downgrade() -> None:
    op.drop_table("services")
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.drop_column("answer")
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.drop_index("ix_sandboxes_alive_started", sqlite_where=_ALIVE, postgresql_where=_ALIVE)
        for name in (
            "network",
            "alias",
            "memory_kept",
            "keep_memory",
            "host_mask",
            "public_ports",
            "auto_resume",
            "timeout_from",
        ):
            batch_op.drop_column(name)
