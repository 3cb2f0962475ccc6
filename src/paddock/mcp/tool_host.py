"""The tool host: serves MCP requests for one sandbox of a server, or for the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl

from paddock import errors
from paddock.tools.context import Progress
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome

_MAX_QUERY = 4096
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    selection: Selection
    structured: bool = False
    """With `structuredContent` and `outputSchema`, for programs."""

    @classmethod
    def of(cls, query: str, usual: Selection) -> ClientOptions:
        """Parse ``tools=files,shell&structured=true``; other parameters are ignored. ``usual``: the default
        selection."""
        given = dict(parse_qsl(query[:_MAX_QUERY]))
        structured = given.get("structured", "").strip().lower()
        if structured not in _YES | _NO:
            raise errors.Invalid("`structured` is true or false.")
        tools = given.get("tools", "").strip()
        return cls(Selection.parse(tools) if tools else usual, structured in _YES)


class ToolHost(Protocol):
    @property
    def usual(self) -> Selection:
        """The selection for clients that request none."""

    async def tools(self, selection: Selection) -> list[Tool]:
        """The selected tools. Does not resume the sandbox."""

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        """Call any tool, listed or not, and return its outcome. A failing tool is an outcome; errors raised come from
        :mod:`paddock.errors`."""
