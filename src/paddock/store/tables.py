"""The tables. Times are epoch seconds: the same on both databases, independent of time zones.

Listing and claiming must not slow down as deleted rows accumulate, so their indexes leave out deleted sandboxes.
"""

from __future__ import annotations

from sqlalchemy import JSON, Column, Double, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text, text

from paddock.store.columns import BigInt, columns_of
from paddock.store.records import EventRow, KeyClaim, McpServerRow, Node, SandboxRow, ServiceRow, UserRow

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Time = Double

# Used in indexes and queries alike: a partial index is only used if the query contains the same condition, literally.
ALIVE = text("state != 'deleted'")
LIVE = text("state IN ('creating', 'running', 'pausing', 'resuming')")
NAMED = text("state != 'deleted' AND name IS NOT NULL")
UNFINISHED = text("state IN ('creating', 'pausing', 'resuming', 'deleting')")

sandboxes = Table("sandboxes", metadata, *columns_of(SandboxRow, "sandbox_id"))

# One index per listing: newest first, over all, by owner, by user label; deleted ones only by state. `sqlite_where`
# stands for both databases: the migrations, which create the indexes, set it for PostgreSQL too. To set that here would
# import SQLAlchemy's PostgreSQL dialect.
for _name, _columns in {
    "all": ("created_at", "sandbox_id"),
    "owner": ("owner_id", "created_at", "sandbox_id"),
    "user": ("user_id", "created_at", "sandbox_id"),
}.items():
    Index(
        f"ix_sandboxes_alive_{_name}",
        *(sandboxes.c[column] for column in _columns),
        sqlite_where=ALIVE,
    )
Index(
    "ix_sandboxes_alive_started",
    sandboxes.c.owner_id,
    sandboxes.c.started_at,
    sandboxes.c.sandbox_id,
    sqlite_where=ALIVE,
)
Index("ix_sandboxes_state", sandboxes.c.state, sandboxes.c.created_at, sandboxes.c.sandbox_id)
Index(
    "ix_sandboxes_owner_state",
    sandboxes.c.owner_id,
    sandboxes.c.state,
    sandboxes.c.created_at,
    sandboxes.c.sandbox_id,
)
Index(
    "ix_sandboxes_name",
    sandboxes.c.name,
    sandboxes.c.owner_id,
    unique=True,
    sqlite_where=NAMED,
)
Index("ix_sandboxes_live", sandboxes.c.owner_id, sqlite_where=LIVE)
Index(
    "ix_sandboxes_unfinished",
    sandboxes.c.state_changed_at,
    sqlite_where=UNFINISHED,
)
Index("ix_sandboxes_deleted_at", sandboxes.c.deleted_at)
Index("ix_sandboxes_running_since", sandboxes.c.running_since)

deadlines = Table(
    "deadlines",
    metadata,
    Column("sandbox_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("due_at", Time, nullable=False),
    Column("warn_at", Time),
    Column("wake_at", Time, nullable=False, index=True, doc="warn_at while there is one, else due_at"),
    Column("generation", Integer, nullable=False),
    Column("claimed_by", Text),
    Column("claimed_until", Time),
    Column("attempts", Integer, nullable=False),
    PrimaryKeyConstraint("sandbox_id", "kind"),
)

events = Table("events", metadata, *columns_of(EventRow, "sandbox_id", "seq"))

usage = Table(
    "usage",
    metadata,
    Column("sandbox_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("owner_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("commands", BigInt, nullable=False),
    Column("bytes_in", BigInt, nullable=False),
    Column("bytes_out", BigInt, nullable=False),
    PrimaryKeyConstraint("sandbox_id", "day"),
    Index("ix_usage_owner_id_day", "owner_id", "day"),
    Index("ix_usage_user_id_day", "user_id", "day"),
)

users = Table("users", metadata, *columns_of(UserRow, "user_id"))

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", Integer, primary_key=True, autoincrement=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("user_id", Text, nullable=False, index=True),
    Column("prefix", Text, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("last_used_at", Time),
)

idempotency = Table(
    "idempotency",
    metadata,
    *columns_of(KeyClaim, "owner_id", "key"),
    Index("ix_idempotency_created_at", "created_at"),
)

counted_commands = Table(
    "counted_commands",
    metadata,
    Column("process_id", Text, primary_key=True, doc="of a command whose request may be made again"),
    Column("counted_at", Time, nullable=False, index=True),
)

servers = Table(
    "servers",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("started_at", Time, nullable=False),
    Column("heartbeat_at", Time, nullable=False),
    Column("pool", JSON, doc="how many machines it wants to stand ready, for each shape"),
)

nodes = Table("nodes", metadata, *columns_of(Node, "node_id"))

notes = Table(
    "notes",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("number", BigInt, nullable=False, doc="the last of its notes that is in this database"),
)

installation = Table(
    "installation",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

tickets = Table(
    "tickets",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("sandbox_id", Text, nullable=False),
    Column("user_id", Text, nullable=False, doc="in whose name"),
    Column("port", Integer, doc="None: the API"),
    Column("expires_at", Time, nullable=False, index=True),
)

services = Table(
    "services",
    metadata,
    *columns_of(ServiceRow, "sandbox_id", "name"),
    Index("ix_services_sandbox_id_port", "sandbox_id", "port", unique=True),
)

mcp_servers = Table("mcp_servers", metadata, *columns_of(McpServerRow, "sandbox_id", "name"))
