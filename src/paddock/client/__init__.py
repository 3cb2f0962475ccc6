"""The Python client of the native API: async :class:`SandboxClient` and its twin :class:`SyncSandboxClient`."""

from __future__ import annotations

from paddock.client.answers import (
    CommandResult,
    Ended,
    Event,
    File,
    FileChange,
    Output,
    Process,
    ProcessEvent,
    ProcessOutput,
    Sandbox,
    SandboxPage,
    Started,
)
from paddock.client.asynchronous import SandboxClient
from paddock.client.errors import AnswerLost, ServerUnreachable, UnexpectedAnswer
from paddock.client.synchronous import SyncSandboxClient

__all__ = [
    "AnswerLost",
    "CommandResult",
    "Ended",
    "Event",
    "File",
    "FileChange",
    "Output",
    "Process",
    "ProcessEvent",
    "ProcessOutput",
    "Sandbox",
    "SandboxClient",
    "SandboxPage",
    "ServerUnreachable",
    "Started",
    "SyncSandboxClient",
    "UnexpectedAnswer",
]
