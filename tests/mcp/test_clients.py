"""Clients that others wrote, unmodified, against a real server: each calls every tool, and each answer is judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paddock.tools import catalogue
from tests.mcp import browser_tour, travellers
from tests.mcp.calls import Call, judge
from tests.mcp.tour import tour
from tests.mcp.world import ERAS, Box

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RELAYED = Call("mcp_plain_echo", {"text": "relayed"}, "relayed")
EVERY = {*catalogue.TOOLS, RELAYED.tool}


@pytest.fixture
def sandbox(new_box: Callable[..., Box]) -> Box:
    """With a user's server beside its own tools."""
    box = new_box()
    box.plain("plain")
    box.wait_for("plain", "ready")
    return box


def calls_for(box: Box) -> list[Call]:
    return [*tour("No module named pip" not in box.run("python3 -m pip --version 2>&1")), RELAYED]


def test_no_tool_is_left_out_of_the_tours() -> None:
    called = {call.tool for call in (*tour(has_pip=True), *browser_tour.TOUR) if not call.fails}
    assert called == catalogue.TOOLS.keys()


@pytest.mark.parametrize("era", ERAS)
async def test_the_newest_sdk_calls_every_tool_in_both_eras(sandbox: Box, era: str) -> None:
    calls = calls_for(sandbox)
    judge(calls, await travellers.newest(sandbox, era, calls))


def test_the_sdk_before_2_lists_and_calls_every_tool(sandbox: Box) -> None:
    calls = calls_for(sandbox)
    found = travellers.sdk_before_2(sandbox, calls)
    assert found["version"] == "2025-11-25"
    assert set(found["listed"]) >= EVERY
    judge(calls, found["answers"])


def test_langchains_adapters_load_and_call_every_tool(sandbox: Box) -> None:
    calls = calls_for(sandbox)
    found = travellers.langchain(sandbox, calls)
    assert set(found["listed"]) >= EVERY
    judge(calls, found["answers"])


def test_the_javascript_sdk_lists_and_calls_every_tool(sandbox: Box) -> None:
    calls = calls_for(sandbox)
    found = travellers.javascript(sandbox, calls)
    assert set(found["listed"]) >= EVERY
    judge(calls, found["answers"])


def test_the_inspector_lists_and_calls_tools(sandbox: Box) -> None:
    listed = travellers.inspector(sandbox, "--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} >= EVERY
    words = ("--tool-name", "run_command", "--tool-arg", "command=echo inspected")
    ran = travellers.inspector(sandbox, "--method", "tools/call", *words)
    assert ran["structuredContent"]["stdout"] == "inspected\n"
