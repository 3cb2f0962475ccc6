"""Names of sandboxes, how long each is kept once paused, ends whatever the state, and what Daytona's clients set"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAMED = sa.text("state != 'deleted' AND name IS NOT NULL")


def upgrade() -> None:
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("name", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("retention", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("ends_at", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("daytona", sa.JSON(), nullable=True))
        batch_op.create_index(
            "ix_sandboxes_name", ["name", "owner_id"], unique=True, sqlite_where=_NAMED, postgresql_where=_NAMED
        )


def downgrade() -> None:
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.drop_index("ix_sandboxes_name", sqlite_where=_NAMED, postgresql_where=_NAMED)
        for name in ("daytona", "ends_at", "retention", "name"):
            batch_op.drop_column(name)
