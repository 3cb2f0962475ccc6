"""Command lines with which one process of this program starts another."""

from __future__ import annotations

import os
import sys

NAMES = {"server": "uvicorn main:app", "fork_server": "jupyter server, jupyter-server"}
"""Process titles by which scripts written for E2B find the interpreter's processes to check that they restart."""


def words(role: str, socket: int, kit: str) -> list[str]:
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    common = [entry, role, "--socket", str(socket), "--parent", str(os.getpid()), "--kit", kit]
    return [sys.executable, *_flags(role, kit), *common, "--known-as", NAMES[role]]


def _flags(role: str, kit: str) -> list[str]:
    """The user's environment variables and packages must not affect our server, only the kernels."""
    if role != "server":
        return []
    return ["-E", "-s"] if kit else ["-E"]
