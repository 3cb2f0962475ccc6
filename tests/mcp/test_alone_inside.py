"""``python -m paddock.mcp`` in a sandbox, as in one that somebody else made: every tool works, or says what it lacks.

A relay of the sandbox starts it, so that Paddock is at both ends.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import paddock
from paddock.tools import catalogue
from tests.mcp import tour, travellers
from tests.mcp.calls import Call, judge
from tests.mcp.world import Box

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OWN_PYTHON = "/opt/python"
PACKAGES = {
    "/opt/paddock": str(Path(paddock.__file__).parents[1]),
    "/opt/packages": sysconfig.get_path("purelib"),
}
CALLS = [
    *(*tour.FILES, *tour.PLANS, *tour.COMMANDS, *tour.SHELLS, *tour.NETWORK, *tour.GIT, *tour.AGENTS),
    Call("run_python", {"code": "1"}, "run_command", fails=True),
    Call("browser_navigate", {"url": "http://localhost:3000"}, "Playwright", fails=True),
]


@pytest.fixture
def alone(new_box: Callable[..., Box]) -> Box:
    """With the Python and the packages of these tests, where the sandbox's user can read them."""
    visible = sys.base_prefix.startswith("/usr")
    python = sys.base_prefix if visible else OWN_PYTHON
    seen = PACKAGES if visible else {**PACKAGES, OWN_PYTHON: sys.base_prefix}
    box = new_box(mounts=[{"source": source, "target": at, "read_only": True} for at, source in seen.items()])
    env = {"PYTHONPATH": ":".join(PACKAGES), "LD_LIBRARY_PATH": f"{python}/lib"}
    box.put(
        "alone",
        command=f"{python}/bin/python3",
        args=["-m", "paddock.mcp", "--stdio", "--tools", "full", "--structured"],
        env=env,
    ).raise_for_status()
    box.wait_for("alone", "ready")
    return box


async def test_every_tool_works_without_a_server_or_says_what_it_lacks(alone: Box) -> None:
    assert {f"mcp_alone_{name}" for name in catalogue.TOOLS} <= set(alone.tools())
    calls = [replace(call, tool=f"mcp_alone_{call.tool}") for call in CALLS]
    judge(calls, await travellers.newest(alone, "auto", calls))
