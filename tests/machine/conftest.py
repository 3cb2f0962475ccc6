"""The tests here run on both event loops, and prove that no descriptor is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from paddock.machine.agent import AgentMachine
from tests.machine.plain import PlainAgent

_OTHERS_SECONDS = 2.0
"""A server of other tests may be at work in this process: what it opens it closes in a moment; a leak stays."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Servers use uvloop. On asyncio, which ``python -m paddock.mcp`` uses, a sample, or all that is not long."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    twice = item.path.stem in {"test_wire", "test_real_agent"} or (
        os.environ.get("PADDOCK_TEST_ALL") and item.path.stem not in {"test_conformance", "test_shortcuts"}
    )
    return both if twice else {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def uvloop_is_set_up() -> None:
    """libuv keeps a pipe for signals from its first loop on."""
    uvloop.new_event_loop().close()


@pytest.fixture(scope="module", autouse=True)
def cheap_collections() -> None:
    """What earlier modules left need not be walked after each of hundreds of tests: it takes up to a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_descriptor_leaks(uvloop_is_set_up: None, cheap_collections: None) -> Iterator[None]:
    """Set up before, and so checked after, everything else of a test, its event loop included."""
    before = open_descriptors()
    yield
    gc.collect()
    left = {name: what for name, what in open_descriptors().items() if before.get(name) != what}
    patience = time.monotonic() + _OTHERS_SECONDS
    while left and time.monotonic() < patience:
        time.sleep(0.01)
        left = {name: what for name, what in open_descriptors().items() if left.get(name) == what}
    assert not left, f"left open: {left}"


def open_descriptors() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except FileNotFoundError:  # the listing's own
            continue
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[PlainAgent]:
    """The real one, in its plain mode."""
    running = PlainAgent(tmp_path)
    yield running
    running.stop()


@pytest.fixture
async def machine(agent: PlainAgent) -> AsyncIterator[AgentMachine]:
    made = agent.machine()
    yield made
    await made.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made
