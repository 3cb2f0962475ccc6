"""A tool of a user's server, presented as one of the sandbox's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from paddock.tools.context import Progress, ToolContext
from paddock.tools.tool import Tool, ToolOutcome, ToolReply

PREFIX = "mcp_"
MAX_NAME_LENGTH = 64
"""Maximum length of a tool name that every model accepts."""

_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def is_relayed(name: str) -> bool:
    return name.startswith(PREFIX)


def tool_name(server: str, tool: str) -> str:
    """Deterministic. Two tools of a server get the same name only if they differ just in characters that no model
    accepts."""
    plain = f"{PREFIX}{_INVALID_CHARACTER.sub('_', server)}_{_INVALID_CHARACTER.sub('_', tool)}"
    if len(plain) <= MAX_NAME_LENGTH:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{plain[: MAX_NAME_LENGTH - 9]}_{digest}"


MAX_DESCRIPTION_LENGTH = 8192

Forward = Callable[[str, Mapping[str, Any], Progress], Awaitable[ToolOutcome]]


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool as last reported by its server. Stored, so that it can be listed while nothing runs."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False

    def stored(self) -> dict[str, Any]:
        return asdict(self)


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


async def _not_here(ctx: ToolContext, **arguments: Any) -> ToolReply[_Anything]:
    raise NotImplementedError("the tool of another server has no function of its own")


@dataclass(frozen=True)
class RelayedTool(Tool):
    known: KnownTool = KnownTool("", "", "", {})
    forward: Forward | None = None

    @cached_property
    def description(self) -> str:
        return self.known.description

    @cached_property
    def arguments(self) -> type[BaseModel]:
        return create_model(f"{self.name}_arguments", __base__=_Anything)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", **self.known.input_schema}

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """Empty if its server declares none."""
        return self.known.output_schema or {}

    async def call(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutcome:
        if self.forward is None:
            return ToolOutcome(f"The MCP server of {self.name} is not there.", failed=True)
        return await self.forward(self.known.name, arguments, ctx.progress)


def relayed(server: str, known: KnownTool, forward: Forward | None) -> RelayedTool:
    return RelayedTool(
        name=tool_name(server, known.name),
        title=known.title or known.name,
        function=_not_here,
        read_only=known.read_only,
        destructive=known.destructive,
        idempotent=known.idempotent,
        open_world=True,
        kit=f"mcp: {server}",
        known=known,
        forward=forward,
    )
