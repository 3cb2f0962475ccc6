"""The names of the two distributions. ``paddock`` on PyPI is an unrelated package, so no message may lead to it."""

from __future__ import annotations

import importlib.util
import shlex
import sys

SERVER = "paddock-sandbox"
CLIENT = "paddock-client"


def install_command(extra: str, distribution: str = SERVER) -> str:
    """The shell command that adds an extra to the environment that runs this code."""
    python = sys.executable or "python3"
    # The environments of `uv tool` and `uv venv` have no pip.
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(python)} '{distribution}[{extra}]'"
    return f"{shlex.quote(python)} -m pip install '{distribution}[{extra}]'"
