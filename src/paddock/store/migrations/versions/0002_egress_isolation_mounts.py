"""Egress, isolation and mounts of a sandbox; what each server wants of the pool; how far its notes have come"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_PROXY = '{"mode": "proxy", "allow": [], "deny": []}'


def upgrade() -> None:
    # With defaults for the rows that are there already: neither database rewrites the table for that.
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("egress", sa.JSON(), nullable=False, server_default=_PROXY))
        batch_op.add_column(sa.Column("isolation", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("mounts", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("servers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("pool", sa.JSON(), nullable=True))
    op.create_table(
        "notes",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("server_id", name=op.f("pk_notes")),
    )


def downgrade() -> None:
    op.drop_table("notes")
    with op.batch_alter_table("servers", schema=None) as batch_op:
        batch_op.drop_column("pool")
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        for name in ("mounts", "isolation", "egress"):
            batch_op.drop_column(name)
