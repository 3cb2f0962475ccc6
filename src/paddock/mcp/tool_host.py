"""The tool host: serves MCP requests for one sandbox of a server, or for the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from paddock.tools.context import Progress
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome


class ToolHost(Protocol):
    @property
    def usual(self) -> Selection:
        """The selection for clients that request none."""

    async def tools(self, selection: Selection) -> list[Tool]:
        """The selected tools. Does not resume the sandbox."""

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        """Call any tool, listed or not, and return its outcome. A failing tool is an outcome; errors raised come from
        :mod:`paddock.errors`."""
