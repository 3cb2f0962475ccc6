"""Texts that state why a sandbox is in its state."""

from __future__ import annotations

from paddock.lifecycle.states import OPERATIONS
from paddock.store.records import SandboxRow


def unfinished(sandbox: SandboxRow) -> str:
    return f"{OPERATIONS[sandbox.state].name} has not finished: "


def begun(sandbox: SandboxRow) -> str | None:
    """Why its transition was begun, without the error of a failed attempt."""
    return (sandbox.reason or "").partition(unfinished(sandbox))[0].strip() or None


def why(cause: str) -> str | None:
    return {"timeout": "Its timeout struck.", "request": None}.get(cause, cause)
