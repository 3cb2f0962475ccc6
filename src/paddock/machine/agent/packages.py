"""Variables with which the package managers of a sandbox install for whoever calls them.

A sandbox is thrown away as a whole, so what PEP 668 protects, the system's own Python, needs no protection in it.
"""

from __future__ import annotations

from collections.abc import Mapping

NPM_CONFIG = "/etc/paddock/npmrc"
"""Sets npm's prefix to ``~/.local``. Not by ``NPM_CONFIG_PREFIX``, with which nvm refuses to work."""
USER_PATH = "~/.local/bin"
"""In ``PATH``: the agent puts the home of the process's user in place of ``~``."""

_ALL = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", "UV_BREAK_SYSTEM_PACKAGES": "1"}
_ROOT = ("root", "0")


def variables(user: str) -> Mapping[str, str]:
    """Root installs for everybody, and so needs no place of its own."""
    return _ALL if user in _ROOT else {**_ALL, "NPM_CONFIG_GLOBALCONFIG": NPM_CONFIG}
