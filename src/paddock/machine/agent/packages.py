"""Environment variables with which the package managers of a sandbox install for the calling user.

A sandbox is disposable, so the system Python that PEP 668 protects needs no protection in it.
"""

from __future__ import annotations

from collections.abc import Mapping

NPM_CONFIG = "/etc/paddock/npmrc"
"""Sets npm's prefix to ``~/.local``. Not set by ``NPM_CONFIG_PREFIX``, because nvm refuses to work with it."""
USER_PATH = "~/.local/bin"
"""Part of ``PATH``: the agent replaces ``~`` by the home directory of the process's user."""

_ALL = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", "UV_BREAK_SYSTEM_PACKAGES": "1"}
_ROOT = ("root", "0")


def variables(user: str) -> Mapping[str, str]:
    """Root installs system-wide, and needs no prefix of its own."""
    return _ALL if user in _ROOT else {**_ALL, "NPM_CONFIG_GLOBALCONFIG": NPM_CONFIG}
