"""Quotas for paused sandboxes, disk, processes, MCP servers and open streams"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.add_column(sa.Column("max_sandboxes", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("max_disk_mb", _BIG, nullable=True))
        batch_op.add_column(sa.Column("max_processes", _BIG, nullable=True))
        batch_op.add_column(sa.Column("max_mcp_servers", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("max_streams", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("users", schema=None) as batch_op:
        for name in ("max_streams", "max_mcp_servers", "max_processes", "max_disk_mb", "max_sandboxes"):
            batch_op.drop_column(name)
