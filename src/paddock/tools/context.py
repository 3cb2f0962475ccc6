"""The tool context: what a tool can use while it works in one sandbox.

Built by the server for sandboxes of any provider, and by the stand-alone MCP server for the machine that it runs on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from paddock import paths
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Connection, Machine
from paddock.memory import Hold, unlimited
from paddock.workers import Workers

DEFAULT_MCP_PORT = 6060
INLINE = 30_000
"""Maximum characters of one reply; the rest is stored in a file whose path is given."""

Progress = Callable[[str], Awaitable[None]]


async def ignore_progress(message: str) -> None:
    """Ignores progress."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    machine: Machine
    reach: Callable[[int], Awaitable[Connection]]
    """Connect to a port; starts its service first if it has one, such as the interpreter or the browser."""
    port_url: Callable[[int], str]
    """URL of a port for a person's browser."""
    program_url: Callable[[int], str]
    """The same for programs, which do not resolve every name that a browser does."""
    workers: Workers
    """Where costly text processing runs, off the event loop."""
    hold: Hold = unlimited
    """Reserves memory for large data."""
    user: str = DEFAULT_USER
    home: str = paths.HOME
    workspace: str = WORKSPACE
    progress: Progress = ignore_progress
    """Report progress. For calls that take more than a few seconds."""
    inline: int = INLINE
    mcp_port: int = DEFAULT_MCP_PORT
    """Port on which MCP is served in the sandbox."""
    confined: bool = False
    """Whether effects are confined to a sandbox. If not, agents ask before they act."""

    @property
    def folder(self) -> str:
        """Directory for what tools store between calls, and for results that are too long for a reply."""
        return f"{self.home}/.paddock"

    def path(self, path: str) -> str:
        """Make a path absolute: relative ones are below the workspace, and ``~`` is the home directory."""
        return paths.absolute(path, workspace=self.workspace, home=self.home)
