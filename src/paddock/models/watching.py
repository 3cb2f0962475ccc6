"""Events, usage, metrics and health on the wire."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from paddock.models.base import Answer


class EventAnswer(Answer):
    seq: int = Field(description="Gap-free per sandbox.")
    type: str = Field(examples=["sandbox.running"])
    at: str
    data: dict[str, Any]


class EventPage(Answer):
    events: list[EventAnswer]
    next_after: int = Field(description="Give it back as `after` to go on.")


class UsageRow(Answer):
    user_id: str
    sandbox_id: str | None = None
    day: str | None = Field(default=None, examples=["2030-01-31"])
    seconds: float = Field(description="Running time.")
    commands: int
    bytes_in: int
    bytes_out: int


class UsageAnswer(Answer):
    total: UsageRow
    rows: list[UsageRow]


class MetricsAnswer(Answer):
    at: str
    cpu_count: float
    cpu_seconds: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int
    process_count: int


class PoolStock(Answer):
    """Machines made in advance, of all shapes together."""

    ready: int
    wanted: int


class Health(Answer):
    status: Literal["ok", "degraded"]
    version: str
    provider: str
    database: Literal["ok", "unavailable"]
    disk: Literal["ok", "low"] = Field(
        default="ok", description="`low`: there is less room than is to stay free, and no sandbox is made."
    )
    server_id: str
    pool: PoolStock | None = Field(default=None, description="None where nothing is made in advance.")
    database_log_bytes: int | None = Field(
        default=None,
        description="Size of SQLite's write-ahead log; over 128 MiB something keeps it from being emptied.",
    )
    loop_stalls: int = Field(
        default=0, description="How often since its start the server did nothing else for 100 ms; the log has each."
    )
