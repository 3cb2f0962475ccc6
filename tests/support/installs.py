"""Installs other people's programs for the tests, beside the first of them: most of it is waiting for registries.

Each is installed once and kept under ``build/``; a test that needs one meanwhile waits for it, and what could not be
installed is tried again, and told, by the test that needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.browser import addon
from tests.browser.test_playwright_mcp import PLAYWRIGHT
from tests.daytona import environments as daytona
from tests.deepagents import environments as deepagents
from tests.e2b import environments as e2b
from tests.gateway.test_vite import VITE
from tests.mcp import environments as mcp

_AT_ONCE = 2
# In the order in which a run of all tests comes to them.
_INSTALLS: tuple[Callable[[], object], ...] = (
    partial(daytona.prepare, daytona.SDK),
    addon.installed,
    partial(e2b.prepare, e2b.PYTHON_NEWEST),
    partial(e2b.prepare, e2b.JS_NEWEST),
    partial(deepagents.prepare, deepagents.NEWER),
    partial(e2b.prepare, VITE),
    partial(e2b.prepare, mcp.PYTHON),
    partial(e2b.prepare, mcp.JAVASCRIPT),
    partial(e2b.prepare, e2b.CLI),
    partial(daytona.prepare_javascript, daytona.JAVASCRIPT),
    partial(e2b.prepare, e2b.PYTHON_OLDEST),
    partial(e2b.prepare, PLAYWRIGHT),
)


def _try(install: Callable[[], object]) -> None:
    try:
        install()
    except (Exception, pytest.skip.Exception) as problem:
        print(f"left to the test that needs it: {problem}")


def main() -> None:
    os.nice(5)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(_try, _INSTALLS):
            pass


if __name__ == "__main__":
    main()
