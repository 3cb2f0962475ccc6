"""The tables. Times are epoch seconds: the same on both databases, independent of time zones.

Listing and claiming must not slow down as deleted rows accumulate, so their indexes leave out deleted sandboxes.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    false,
    text,
    true,
)
from sqlalchemy.types import BigInteger

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Time = Double
BigInt = BigInteger().with_variant(Integer, "sqlite")

# Used in indexes and queries alike: a partial index is only used if the query contains the same condition, literally.
ALIVE = text("state != 'deleted'")
LIVE = text("state IN ('creating', 'running', 'pausing', 'resuming')")
NAMED = text("state != 'deleted' AND name IS NOT NULL")
UNFINISHED = text("state IN ('creating', 'pausing', 'resuming', 'deleting')")

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("owner_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("reference", Text),
    Column("template_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("version", Integer, nullable=False),
    Column("lease_owner", Text),
    Column("attempts", Integer, nullable=False),
    Column("timeout", Integer, nullable=False),
    Column("on_timeout", Text, nullable=False),
    Column("max_lifetime", Integer),
    Column("cpu", Float, nullable=False),
    Column("memory_mb", BigInt, nullable=False),
    Column("disk_mb", BigInt, nullable=False),
    Column("pids", Integer, nullable=False),
    Column("env", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("git_url", Text),
    Column("egress", JSON, nullable=False, server_default='{"mode": "proxy", "allow": [], "deny": []}'),
    Column("isolation", Text),
    Column("mounts", JSON, nullable=False, server_default="[]"),
    Column("timeout_from", Text, nullable=False, server_default="activity"),
    Column("auto_resume", Boolean, nullable=False, server_default=true()),
    Column("public_ports", Boolean, nullable=False, server_default=false()),
    Column("host_mask", Text),
    Column("keep_memory", Boolean, nullable=False, server_default=true()),
    Column("memory_kept", Boolean, nullable=False, server_default=true()),
    Column("alias", Text),
    Column("network", JSON(none_as_null=True)),
    Column("created_at", Time, nullable=False),
    Column("started_at", Time),
    Column("running_since", Time),
    Column("last_activity_at", Time, nullable=False),
    Column("state_changed_at", Time, nullable=False),
    Column("deleted_at", Time),
    Column("event_seq", Integer, nullable=False),
    Column("name", Text),
    Column("retention", Integer),
    Column("ends_at", Time),
    Column("daytona", JSON(none_as_null=True)),
    Column("node_id", Text, doc="whose provider has it; None in rows of before this was written down"),
)

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

events = Table(
    "events",
    metadata,
    Column("sandbox_id", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("at", Time, nullable=False),
    Column("data", JSON, nullable=False),
    PrimaryKeyConstraint("sandbox_id", "seq"),
)

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

users = Table(
    "users",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("max_live", Integer),
    Column("max_cpu", Float),
    Column("max_memory_mb", BigInt),
    Column("requests_per_second", Float),
    Column("created_at", Time, nullable=False),
    Column("max_sandboxes", Integer),
    Column("max_disk_mb", BigInt),
    Column("max_processes", BigInt),
    Column("max_mcp_servers", Integer),
    Column("max_streams", Integer),
    Column("max_bandwidth_mbit", Float),
)

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
    Column("owner_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("sandbox_id", Text, nullable=False),
    Column("process_id", Text),
    Column("answer", JSON(none_as_null=True), doc="status and body to give again, where the sandbox does not tell"),
    Column("created_at", Time, nullable=False, index=True),
    PrimaryKeyConstraint("owner_id", "key"),
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

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("name", Text, nullable=False, doc="the host name of the machine whose server was there last"),
    Column("url", Text, doc="how other servers reach it"),
    Column("boot_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("seen_at", Time, nullable=False),
)

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
    Column("sandbox_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("command", Text, nullable=False),
    Column("env", JSON, nullable=False),
    Column("cwd", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("ready_path", Text),
    Column("ready_timeout", Float, nullable=False),
    PrimaryKeyConstraint("sandbox_id", "name"),
    Index("ix_services_sandbox_id_port", "sandbox_id", "port", unique=True),
)

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("sandbox_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("definition", JSON, nullable=False, doc="as it was given, with variables and secrets"),
    Column("tools", JSON(none_as_null=True), doc="what it said of its tools last"),
    PrimaryKeyConstraint("sandbox_id", "name"),
)
