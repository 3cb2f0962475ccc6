"""Paddock: a self-hosted sandbox platform for AI coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "DaytonaSandbox",
    "DockerSandbox",
    "E2BSandbox",
    "KubernetesSandbox",
    "LocalSandbox",
    "SandboxClient",
    "SandboxSession",
    "SyncSandboxClient",
    "SyncSandboxSession",
    "__version__",
    "create_sandbox",
]

if TYPE_CHECKING:
    from paddock.client import SandboxClient, SyncSandboxClient
    from paddock.session import (
        DaytonaSandbox,
        DockerSandbox,
        E2BSandbox,
        KubernetesSandbox,
        LocalSandbox,
        SandboxSession,
        SyncSandboxSession,
        create_sandbox,
    )


def __getattr__(name: str) -> Any:
    """The clients and sessions, on first use: ``import paddock`` itself stays instant."""
    if name in {"SandboxClient", "SyncSandboxClient"}:
        from paddock import client

        return getattr(client, name)
    if name in __all__:
        from paddock import session

        return getattr(session, name)
    raise AttributeError(f"module 'paddock' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion offers: also what is imported on first use only."""
    return sorted(__all__)
