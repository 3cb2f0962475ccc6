"""The name of this package on PyPI. ``paddock`` there is an unrelated package, so no message may lead to it."""

from __future__ import annotations

import shlex
import sys

DISTRIBUTION = "paddock-sandbox"


def install_command(extra: str) -> str:
    """The shell command that adds an extra to the environment that runs this code."""
    return f"{shlex.quote(sys.executable or 'python3')} -m pip install '{DISTRIBUTION}[{extra}]'"
