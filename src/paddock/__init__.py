"""Paddock: a self-hosted sandbox platform for AI coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["SandboxClient", "SyncSandboxClient", "__version__"]

if TYPE_CHECKING:
    from paddock.client import SandboxClient, SyncSandboxClient


def __getattr__(name: str) -> Any:
    """The clients, on first use: ``import paddock`` itself stays instant."""
    if name in {"SandboxClient", "SyncSandboxClient"}:
        from paddock import client

        return getattr(client, name)
    raise AttributeError(f"module 'paddock' has no attribute {name!r}")
