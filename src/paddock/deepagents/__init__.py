"""Paddock as a sandbox backend of deepagents, and as a provider of its CLI. Needs the extra ``deepagents``."""

from __future__ import annotations

from paddock.deepagents.backend import PaddockSandbox

__all__ = ["PaddockSandbox"]
