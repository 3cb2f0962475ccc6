"""Fixtures that speak the domain, for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from paddock.clock import ManualClock
from tests.e2b.server import PaddockServer
from tests.support import local_home
from tests.support.postgres import Postgres, running_postgres
from tests.support.serving import serving
from tests.support.world import World, worlds

pytest_plugins = ["tests.support.unavailable"]

hypothesis.settings.register_profile(
    "any machine",
    deadline=None,  # wall time is not what is tested, and a busy machine is no failure
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def shared_layers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    local_home.share(tmp_path_factory.getbasetemp() / "shared")
    yield
    local_home.clear_all()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.exhaustive])])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: each test that asks for one runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'paddock.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return await server.new_database()


@pytest.fixture
async def world(tmp_path: Path, database_url: str) -> AsyncIterator[World]:
    """On both databases."""
    async for each in worlds(tmp_path, database_url):
        yield each


@pytest.fixture
async def small_world(tmp_path: Path) -> AsyncIterator[World]:
    """On SQLite alone, for what does not depend on the database."""
    async for each in worlds(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}"):
        yield each


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk it ever again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``make test`` runs one form of each test; all of them run with ``PADDOCK_TEST_ALL=1`` (``make test-all``).
    Neither runs what this machine cannot."""
    from tests.support import unavailable  # a plugin, which pytest wants to import itself

    left_out = unavailable.leave_out(config, items)
    if not os.environ.get("PADDOCK_TEST_ALL"):
        left_out += [item for item in items if item.get_closest_marker("exhaustive") and not _in_the_sample(item)]
    config.hook.pytest_deselected(items=left_out)
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]


_SAMPLE = (
    "tests/agent/test_frames.py",  # sanitized: everything that parses
    "tests/agent/test_files.py",
    "tests/lifecycle/test_deadlines.py",  # PostgreSQL: claims by several servers
    "tests/lifecycle/test_reconciler.py",
    "tests/store/",
)


def _in_the_sample(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_SAMPLE)


@pytest.fixture(scope="session")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    """``paddock up`` on the ``local`` provider, for those who build agents on it."""
    with serving(tmp_path_factory.mktemp("paddock") / "home") as running:
        yield running


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """E2B is played by a second Paddock, a server of its own; its sandboxes are local ones. One for all who ask."""
    from tests.vendor.account import an_account

    with an_account(tmp_path_factory.mktemp("vendor") / "home") as found:
        yield found


@pytest.fixture(scope="session")
def daytona_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """And so is Daytona."""
    from tests.vendor.account import DaytonaAccount, an_account

    with an_account(tmp_path_factory.mktemp("vendor") / "home", DaytonaAccount) as found:
        yield found
