"""Sessions: a sandbox that belongs to a conversation and is found again by the conversation's id."""

from __future__ import annotations

from paddock.session.asynchronous import (
    DaytonaSandbox,
    DockerSandbox,
    E2BSandbox,
    KubernetesSandbox,
    LocalSandbox,
    SandboxSession,
    create_sandbox,
)
from paddock.session.opening import AtExit, SandboxOptions
from paddock.session.synchronous import SyncSandboxSession

__all__ = [
    "AtExit",
    "DaytonaSandbox",
    "DockerSandbox",
    "E2BSandbox",
    "KubernetesSandbox",
    "LocalSandbox",
    "SandboxOptions",
    "SandboxSession",
    "SyncSandboxSession",
    "create_sandbox",
]
