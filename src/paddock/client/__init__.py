"""The Python client of the native API: async :class:`SandboxClient` and its sync form :class:`SyncSandboxClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.client.answers import (
    CodeContext,
    CodeEnded,
    CodeEvent,
    CodeOutput,
    CodeRaised,
    CodeResult,
    CodeShown,
    CodeStarted,
    CommandResult,
    Ended,
    Event,
    File,
    FileChange,
    Link,
    Output,
    Process,
    ProcessEvent,
    ProcessOutput,
    Sandbox,
    SandboxPage,
    Service,
    Started,
    Ticket,
    ToolInfo,
    ToolResult,
)
from paddock.client.errors import AnswerLost, ServerUnreachable, UnexpectedAnswer
from paddock.client.synchronous import SyncSandboxClient

if TYPE_CHECKING:
    from paddock.client.asynchronous import SandboxClient

__all__ = [
    "AnswerLost",
    "CodeContext",
    "CodeEnded",
    "CodeEvent",
    "CodeOutput",
    "CodeRaised",
    "CodeResult",
    "CodeShown",
    "CodeStarted",
    "CommandResult",
    "Ended",
    "Event",
    "File",
    "FileChange",
    "Link",
    "Output",
    "Process",
    "ProcessEvent",
    "ProcessOutput",
    "Sandbox",
    "SandboxClient",
    "SandboxPage",
    "ServerUnreachable",
    "Service",
    "Started",
    "SyncSandboxClient",
    "Ticket",
    "ToolInfo",
    "ToolResult",
    "UnexpectedAnswer",
]


def __getattr__(name: str) -> Any:
    """Import the async client on first use: blocking programs, such as most CLI commands, need no event loop."""
    if name == "SandboxClient":
        from paddock.client.asynchronous import SandboxClient

        return SandboxClient
    raise AttributeError(f"module 'paddock.client' has no attribute {name!r}")
