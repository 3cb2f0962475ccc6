"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _api_keys()
    _deadlines()
    _events()
    _idempotency()
    _installation()
    _sandboxes()
    _servers()
    _usage()
    _users()


def downgrade() -> None:
    for table in (
        "users",
        "usage",
        "servers",
        "sandboxes",
        "installation",
        "idempotency",
        "events",
        "deadlines",
        "api_keys",
    ):
        op.drop_table(table)


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_keys_hash")),
    )
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_api_keys_user_id"), ["user_id"], unique=False)


def _deadlines() -> None:
    op.create_table(
        "deadlines",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("warn_at", sa.Double(), nullable=True),
        sa.Column("wake_at", sa.Double(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("claimed_until", sa.Double(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "kind", name=op.f("pk_deadlines")),
    )
    with op.batch_alter_table("deadlines", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deadlines_wake_at"), ["wake_at"], unique=False)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "seq", name=op.f("pk_events")),
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("process_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "key", name=op.f("pk_idempotency")),
    )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_created_at"), ["created_at"], unique=False)


def _installation() -> None:
    op.create_table(
        "installation",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_installation")),
    )


def _sandboxes() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("template_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("timeout", sa.Integer(), nullable=False),
        sa.Column("on_timeout", sa.Text(), nullable=False),
        sa.Column("max_lifetime", sa.Integer(), nullable=True),
        sa.Column("cpu", sa.Float(), nullable=False),
        sa.Column("memory_mb", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("disk_mb", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("pids", sa.Integer(), nullable=False),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("git_url", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("running_since", sa.Double(), nullable=True),
        sa.Column("last_activity_at", sa.Double(), nullable=False),
        sa.Column("state_changed_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", name=op.f("pk_sandboxes")),
        sa.UniqueConstraint("key", name=op.f("uq_sandboxes_key")),
    )
    with op.batch_alter_table("sandboxes", schema=None) as batch_op:
        batch_op.create_index(
            "ix_sandboxes_alive_all",
            ["created_at", "sandbox_id"],
            unique=False,
            sqlite_where=sa.text("state != 'deleted'"),
            postgresql_where=sa.text("state != 'deleted'"),
        )
        batch_op.create_index(
            "ix_sandboxes_alive_owner",
            ["owner_id", "created_at", "sandbox_id"],
            unique=False,
            sqlite_where=sa.text("state != 'deleted'"),
            postgresql_where=sa.text("state != 'deleted'"),
        )
        batch_op.create_index(
            "ix_sandboxes_alive_user",
            ["user_id", "created_at", "sandbox_id"],
            unique=False,
            sqlite_where=sa.text("state != 'deleted'"),
            postgresql_where=sa.text("state != 'deleted'"),
        )
        batch_op.create_index("ix_sandboxes_deleted_at", ["deleted_at"], unique=False)
        batch_op.create_index(
            "ix_sandboxes_live",
            ["owner_id"],
            unique=False,
            sqlite_where=sa.text("state IN ('creating', 'running', 'pausing', 'resuming')"),
            postgresql_where=sa.text("state IN ('creating', 'running', 'pausing', 'resuming')"),
        )
        batch_op.create_index(
            "ix_sandboxes_owner_state", ["owner_id", "state", "created_at", "sandbox_id"], unique=False
        )
        batch_op.create_index("ix_sandboxes_running_since", ["running_since"], unique=False)
        batch_op.create_index("ix_sandboxes_state", ["state", "created_at", "sandbox_id"], unique=False)
        batch_op.create_index(
            "ix_sandboxes_unfinished",
            ["state_changed_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('creating', 'pausing', 'resuming', 'deleting')"),
            postgresql_where=sa.text("state IN ('creating', 'pausing', 'resuming', 'deleting')"),
        )


def _servers() -> None:
    op.create_table(
        "servers",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", name=op.f("pk_servers")),
    )


def _usage() -> None:
    op.create_table(
        "usage",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("commands", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("bytes_in", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("bytes_out", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("sandbox_id", "day", name=op.f("pk_usage")),
    )
    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.create_index("ix_usage_owner_id_day", ["owner_id", "day"], unique=False)
        batch_op.create_index("ix_usage_user_id_day", ["user_id", "day"], unique=False)


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("max_live", sa.Integer(), nullable=True),
        sa.Column("max_cpu", sa.Float(), nullable=True),
        sa.Column("max_memory_mb", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("requests_per_second", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_users")),
    )
