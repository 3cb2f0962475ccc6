"""The bench: what a tool has in reach while it works in one sandbox.

Whoever serves a call builds it: the server on a sandbox of any provider, or the stand-alone MCP server on the machine
that it runs on.
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
"""Characters that one answer may hold; the rest is kept in a file, whose path is given."""

Progress = Callable[[str], Awaitable[None]]


async def unheard(message: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    machine: Machine
    reach: Callable[[int], Awaitable[Connection]]
    """Connect to a port, having its service start first where it has one: the interpreter, the browser."""
    port_url: Callable[[int], str]
    """The address at which a person can open a port."""
    program_url: Callable[[int], str]
    """The same for programs, which do not resolve every name that a browser does."""
    workers: Workers
    """Where costly work on text is done: not on the event loop."""
    hold: Hold = unlimited
    """Where large pieces of memory are counted."""
    user: str = DEFAULT_USER
    home: str = paths.HOME
    workspace: str = WORKSPACE
    progress: Progress = unheard
    """Tell whoever waits what is going on. For calls that take more than a few seconds."""
    inline: int = INLINE
    mcp_port: int = DEFAULT_MCP_PORT
    """At which port of the sandbox the agent serves MCP."""
    confined: bool = False
    """What is done here stays in a sandbox. Where it does not, agents ask before they act."""

    @property
    def folder(self) -> str:
        """What tools remember between calls, and what was too long for an answer."""
        return f"{self.home}/.paddock"

    def path(self, path: str) -> str:
        """Absolute; a relative one begins at the workspace, and ``~`` is home."""
        return paths.absolute(path, workspace=self.workspace, home=self.home)
