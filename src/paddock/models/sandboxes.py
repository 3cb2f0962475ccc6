"""Sandboxes on the wire."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from paddock.models.base import Answer, Request, Success
from paddock.models.confinement import ConfinementRequest, Egress, Isolation, MountInfo
from paddock.models.mcp import McpServers
from paddock.models.values import (
    GIT_URL,
    Command,
    Env,
    Metadata,
    SandboxId,
    Seconds,
    UserId,
    Wait,
    _no_nul,
    _whole,
)


class State(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


class TimeoutAction(StrEnum):
    PAUSE = "pause"
    DELETE = "delete"


class TimeoutFrom(StrEnum):
    """What a sandbox's timeout is counted from."""

    ACTIVITY = "activity"
    """Its last use: whoever uses it pushes the end out."""
    START = "start"
    """The moment it was set: a fixed end, whatever the activity. E2B's meaning."""


# Strictness would ask for the enum's own member; on the wire it is its text.
TimeoutChoice = Annotated[TimeoutAction, Field(strict=False)]


class ResourceRequest(Request):
    cpu: float | None = Field(default=None, gt=0, le=256, allow_inf_nan=False, description="Cores.")
    memory_mb: Annotated[int, Field(ge=16, le=1 << 20), BeforeValidator(_whole)] | None = None
    disk_mb: Annotated[int, Field(ge=16, le=1 << 24), BeforeValidator(_whole)] | None = None
    pids: Annotated[int, Field(ge=4, le=1 << 20), BeforeValidator(_whole)] | None = None


class CreateSandbox(ConfinementRequest):
    user_id: UserId
    template_id: str | None = Field(default=None, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")
    timeout: Seconds | None = Field(
        default=None,
        description="Idle seconds before `on_timeout` is carried out. The server has a default and a maximum.",
    )
    max_lifetime: Seconds | None = Field(
        default=None,
        description="Seconds after which `on_timeout` is carried out, whatever the activity. Default: none.",
    )
    on_timeout: TimeoutChoice = TimeoutAction.PAUSE
    env: Env = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    resources: ResourceRequest = Field(default_factory=ResourceRequest)
    git_url: str | None = Field(
        default=None,
        max_length=2048,
        description="Cloned into `/workspace/<name>` before create answers.",
        examples=["https://example.org/some/project.git"],
        json_schema_extra={"pattern": GIT_URL},
    )
    provider: str | None = Field(default=None, max_length=40, pattern=r"^[a-z0-9_-]+$")
    public_ports: bool = Field(
        default=False, description="Anybody who knows the address may open its ports; no key, link or ticket is needed."
    )
    mcp_servers: McpServers = Field(default_factory=dict)
    auto_resume: bool = Field(
        default=True,
        description="Whether traffic to its ports, commands and file operations wake it when it is paused. If not, "
        "only connect and resume do.",
    )
    command: Command | None = Field(
        default=None, description="Run once it runs, as by run-command; the answer has the result in `command`."
    )
    command_timeout: Wait | None = Field(
        default=None,
        description="Soft: seconds to wait for the end of `command`. After that the answer says that it is `running`.",
    )

    @field_validator("git_url")
    @classmethod
    def _git_url(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(GIT_URL, _no_nul(url)):
            raise ValueError("must be an http, https, ssh, git or file URL, or user@host:path, without white space")
        return url


class SandboxRef(Request):
    sandbox_id: SandboxId


class ConnectSandbox(SandboxRef):
    timeout: Seconds | None = Field(default=None, description="Also remember this idle timeout from now on.")


class SetTimeout(SandboxRef):
    timeout: Seconds
    action: TimeoutChoice | None = Field(default=None, description="Change what happens when it expires.")


class ExposePort(SandboxRef):
    port: Annotated[int, Field(ge=1, le=65535, examples=[3000]), BeforeValidator(_whole)]


class ResourceInfo(Answer):
    cpu: float
    memory_mb: int
    disk_mb: int
    pids: int


class SandboxInfo(Answer):
    sandbox_id: str = Field(examples=["alice_1f2e3d4c"])
    key: str = Field(description="The DNS-safe second name, used in host names.")
    user_id: str
    owner_id: str = Field(description="The account whose key made it.")
    status: State
    reason: str | None = Field(default=None, description="Why it is in this state, where that is worth saying.")
    provider: str
    template_id: str
    timeout: int = Field(description="Idle seconds, remembered through connect, pause, resume and restart.")
    on_timeout: TimeoutAction
    timeout_from: TimeoutFrom = Field(
        description="`activity`: every use pushes the end out. `start`: a fixed end, as E2B's clients set it."
    )
    max_lifetime: int | None
    resources: ResourceInfo
    egress: Egress = Field(description="The mode; `GET /sandboxes/{sandbox_id}/egress` has the lists.")
    isolation: Isolation | None = Field(description="The minimum that was asked for.")
    mounts: list[MountInfo]
    public_ports: bool = Field(description="Whether anybody who knows the address may open its ports.")
    auto_resume: bool = Field(description="Whether using it wakes it when it is paused.")
    metadata: dict[str, Any]
    created_at: str
    started_at: str | None
    last_activity_at: str
    expires_at: str | None = Field(description="When the next deadline expires, if nothing is done before.")
    expires_action: TimeoutAction | None
    mcp_url: str
    mcp_token: str | None = Field(
        default=None, description="Opens `mcp_url`, as `Authorization: Bearer …`, and nothing else. Not in lists."
    )
    vscode_url: str


class SandboxAnswer(SandboxInfo):
    success: Literal[True] = True
    message: str = ""


class SandboxPage(Answer):
    sandboxes: list[SandboxInfo]
    next_cursor: str | None = Field(default=None, description="Give it back as `cursor` for the next page.")


class PortUrl(Success):
    sandbox_id: str
    port: int
    url: str = Field(description="What a browser can open.")
    program_url: str | None = Field(
        default=None, description="The same for programs, which do not resolve `*.localhost` as browsers do."
    )
