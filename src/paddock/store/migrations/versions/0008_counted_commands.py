"""Which commands that may be asked for again are in the usage already"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counted_commands",
        sa.Column("process_id", sa.Text(), nullable=False),
        sa.Column("counted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("process_id", name=op.f("pk_counted_commands")),
    )
    op.create_index(op.f("ix_counted_commands_counted_at"), "counted_commands", ["counted_at"])


def downgrade() -> None:
    op.drop_table("counted_commands")
