"""The Python client of the native API: async :class:`SandboxClient` and its twin :class:`SyncSandboxClient`."""

from __future__ import annotations

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
)
from paddock.client.asynchronous import SandboxClient
from paddock.client.errors import AnswerLost, ServerUnreachable, UnexpectedAnswer
from paddock.client.synchronous import SyncSandboxClient

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
    "UnexpectedAnswer",
]
