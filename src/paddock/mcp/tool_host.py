"""The desk: where a request over MCP is served. One sandbox of a server, or the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from paddock.tools.context import Progress
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome


class ToolHost(Protocol):
    @property
    def usual(self) -> Selection:
        """What is shown to a client that asks for nothing in particular."""

    async def tools(self, selection: Selection) -> list[Tool]:
        """Those of the selection. Looking wakes nobody."""

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        """One call to its end, of any tool, shown or not. A tool that fails is an answer; what is raised comes from
        :mod:`paddock.errors`."""
