"""The user's own MCP servers on the wire, in the shape of an ``.mcp.json``."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from paddock.models.base import Answer, Request
from paddock.models.values import _PLAIN_TEXT, Env, _no_nul

MAX_SERVERS = 32
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}$"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_URL = r"^(https?://|\$\{)[^\s\u0000]+$"

McpServerName = Annotated[str, Field(pattern=_NAME, examples=["time"], description="Unique in its sandbox.")]
Argument = Annotated[str, AfterValidator(_no_nul), Field(max_length=8192, json_schema_extra={"pattern": _PLAIN_TEXT})]


class McpTransport(StrEnum):
    STDIO = "stdio"
    """A program in the sandbox, spoken to over its standard input and output."""
    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    """HTTP as it was before 2025."""


class McpServerStatus(StrEnum):
    READY = "ready"
    STARTING = "starting"
    FAILED = "failed"
    """`reason` says why; it is tried again after a while."""
    IDLE = "idle"
    """Not started, or let go of: the next use of its tools starts it."""
    DISABLED = "disabled"


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of a header")
        if any(ord(character) < 32 or ord(character) == 127 for character in value.replace("\t", "")):
            raise ValueError(f"the header {name} holds a control character")
        if len(value) > 8192:
            raise ValueError(f"the header {name} is over 8192 characters")
    return headers


class McpServer(Request):
    """One server. What other programs write into such a file, and Paddock has no use for, is passed over."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: str | None = Field(
        default=None,
        max_length=40,
        description="`stdio`, `http` or `sse`. Told by the other fields where it is left out.",
    )
    preset: Literal["claude", "codex"] | None = Field(
        default=None, description="Claude Code's or Codex's own MCP server, which the template must have."
    )
    command: Argument | None = Field(default=None, min_length=1, examples=["npx"])
    args: list[Argument] = Field(default_factory=list, max_length=200, examples=[["-y", "@playwright/mcp"]])
    env: Env = Field(default_factory=dict)
    cwd: Argument | None = Field(default=None, description="`/workspace` unless it is said.")
    url: str | None = Field(default=None, max_length=4096, pattern=_URL)
    http_url: str | None = Field(
        default=None, max_length=4096, pattern=_URL, validation_alias=AliasChoices("httpUrl", "http_url")
    )
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(default_factory=dict)
    disabled: bool = False

    @property
    def address(self) -> str | None:
        return self.http_url or self.url

    @property
    def transport(self) -> McpTransport:
        if self.address is None:
            return McpTransport.STDIO
        return McpTransport.SSE if self.type == "sse" else McpTransport.HTTP

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [way for way in (self.command, self.address, self.preset) if way is not None]
        if len(ways) != 1:
            raise ValueError("give one of `command`, `url` and `preset`")
        if self.type is not None and (self.type == "stdio") is not (self.address is None):
            raise ValueError(f"the type {self.type[:40]!r} does not go with the other fields")
        if self.type not in (None, "stdio", "http", "sse", "streamable-http", "streamable_http", "streamableHttp"):
            raise ValueError(f"{self.type[:40]!r} is not a type: stdio, http or sse")
        return self

    def stored(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


McpServers = Annotated[
    dict[McpServerName, McpServer],
    Field(max_length=MAX_SERVERS, description="The user's own MCP servers by name, as in an `.mcp.json`."),
]


class McpDocument(Request):
    model_config = ConfigDict(extra="ignore", strict=True)

    servers: McpServers = Field(
        default_factory=dict,
        validation_alias=AliasChoices("mcpServers", "mcp_servers"),
        serialization_alias="mcpServers",
    )


class McpServerAnswer(Answer):
    name: str
    source: Literal["api", "file"] = Field(description="`file`: from `/workspace/.mcp.json`.")
    type: McpTransport
    preset: str | None
    command: str | None
    args: list[str]
    env: dict[str, str] = Field(description="Values that may be secrets are shown as `***`.")
    cwd: str | None
    url: str | None
    headers: dict[str, str] = Field(description="Values that may be secrets are shown as `***`.")
    disabled: bool
    status: McpServerStatus
    reason: str | None = Field(description="Why it is not ready.")
    tools: list[str] = Field(description="By their names in this sandbox.")


class McpServerList(Answer):
    servers: list[McpServerAnswer]
    problem: str | None = Field(
        default=None, description="What is wrong with `/workspace/.mcp.json`, if it cannot be read."
    )
