"""Keys, users and quotas on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from paddock.models.base import Answer, Request
from paddock.models.values import UserId, _whole


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"


RoleChoice = Annotated[Role, Field(strict=False)]


class QuotaChange(Request):
    """Null takes the server's default; 0 means no limit."""

    max_live: Annotated[int, Field(ge=0, le=1 << 30), BeforeValidator(_whole)] | None = None
    max_cpu: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    max_memory_mb: Annotated[int, Field(ge=0, le=1 << 40), BeforeValidator(_whole)] | None = None
    requests_per_second: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    max_sandboxes: Annotated[int, Field(ge=0, le=1 << 30), BeforeValidator(_whole)] | None = None
    max_disk_mb: Annotated[int, Field(ge=0, le=1 << 40), BeforeValidator(_whole)] | None = None
    max_processes: Annotated[int, Field(ge=0, le=1 << 40), BeforeValidator(_whole)] | None = None
    max_mcp_servers: Annotated[int, Field(ge=0, le=1 << 30), BeforeValidator(_whole)] | None = None
    max_streams: Annotated[int, Field(ge=0, le=1 << 30), BeforeValidator(_whole)] | None = None
    max_bandwidth_mbit: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


class QuotaAnswer(Answer):
    """0 means no limit."""

    max_live: int = Field(description="Sandboxes that are not paused.")
    max_cpu: float = Field(description="Cores of all that are not paused.")
    max_memory_mb: int = Field(description="Memory of all, with those that are paused and keep it.")
    requests_per_second: float
    max_sandboxes: int = Field(description="Sandboxes, paused or not.")
    max_disk_mb: int = Field(description="Disk of all, paused or not.")
    max_processes: int = Field(description="Process limits of all, with those that are paused and keep their memory.")
    max_mcp_servers: int = Field(description="MCP servers of one sandbox.")
    max_streams: int = Field(description="Event streams, WebSockets and terminals that are open at once.")
    max_bandwidth_mbit: float = Field(description="Mbit/s that all sandboxes send and receive together.")


class CreateKey(Request):
    name: UserId = Field(description="To tell keys apart; also the user, where none is named.")
    user_id: UserId | None = Field(default=None, description="The account that the key acts for; made if new.")
    role: RoleChoice | None = Field(default=None, description="Of a new account. Default: member.")


class KeyAnswer(Answer):
    key_id: int
    name: str
    user_id: str
    prefix: str
    created_at: str
    last_used_at: str | None


class NewKeyAnswer(KeyAnswer):
    success: Literal[True] = True
    key: str = Field(description="Shown this once; only its hash is kept.")


class KeyList(Answer):
    keys: list[KeyAnswer]


class CreateUser(Request):
    user_id: UserId
    role: RoleChoice = Role.MEMBER
    quota: QuotaChange = Field(default_factory=QuotaChange)


class ChangeUser(Request):
    role: RoleChoice | None = None
    quota: QuotaChange | None = None
    disabled: bool | None = None


class UserAnswer(Answer):
    user_id: str
    role: Role
    disabled: bool
    quota: QuotaAnswer
    created_at: str


class UserList(Answer):
    users: list[UserAnswer]
