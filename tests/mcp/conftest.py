"""One server for all tests here, and a sandbox for those that do not change much in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2b.server import PaddockServer, delete_all
from tests.mcp.world import OUTSIDE, Box, create

HERE = Path(__file__).parent
# They run in sandboxes, or in environments of their own.
collect_ignore = ["clients", "servers"]


@pytest.fixture(scope="session")
def paddock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    home = tmp_path_factory.mktemp("paddock") / "home"
    server = PaddockServer(home, PADDOCK_EGRESS_REACHABLE=f"{OUTSIDE}/32", PADDOCK_POOL_SIZE="1")
    server.start()
    try:
        yield server
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


@pytest.fixture(scope="session")
def box(paddock: PaddockServer) -> Box:
    return create(paddock)


@pytest.fixture
def new_box(paddock: PaddockServer) -> Iterator[Callable[..., Box]]:
    made: list[Box] = []

    def make(**fields: Any) -> Box:
        made.append(create(paddock, **fields))
        return made[-1]

    yield make
    for each in made:
        each.delete()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine may take a minute to start a server."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))
