"""Tickets: good for one use of a port, or of the API, within a minute"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tickets",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tickets")),
    )
    op.create_index(op.f("ix_tickets_expires_at"), "tickets", ["expires_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_tickets_expires_at"), table_name="tickets")
    op.drop_table("tickets")
