"""How one process of this program starts another."""

from __future__ import annotations

import os
import sys

NAMES = {"server": "uvicorn main:app", "nursery": "jupyter server, jupyter-server"}
"""Scripts written for E2B look for the interpreter's processes under these names, to see them restarted."""


def words(role: str, socket: int, kit: str) -> list[str]:
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    common = [entry, role, "--socket", str(socket), "--parent", str(os.getpid()), "--kit", kit]
    return [sys.executable, *_flags(role, kit), *common, "--known-as", NAMES[role]]


def _flags(role: str, kit: str) -> list[str]:
    """The server is ours: what the user's variables and packages do to Python is for the kernels."""
    if role != "server":
        return []
    return ["-E", "-s"] if kit else ["-E"]
