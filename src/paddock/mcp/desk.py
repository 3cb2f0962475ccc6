"""The desk: where a request over MCP is served. One sandbox of a server, or the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from paddock.tools.bench import Progress
from paddock.tools.tool import Outcome, Tool


class Desk(Protocol):
    async def tools(self) -> list[Tool]:
        """Those that can be called here. Looking wakes nobody."""

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> Outcome:
        """One call to its end. A tool that fails is an answer; what is raised comes from :mod:`paddock.errors`."""
