"""Fixtures that speak the domain, for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.clock import ManualClock
from tests.support.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: each test that asks for one runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'paddock.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return await server.new_database()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


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
