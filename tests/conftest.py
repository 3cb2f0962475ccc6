"""Fixtures that speak the domain, for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.clock import ManualClock
from tests.e2b.server import PaddockServer
from tests.support.postgres import Postgres, running_postgres
from tests.support.serving import serving


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
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    """``paddock up`` on the ``local`` provider, for those who build agents on it."""
    with serving(tmp_path_factory.mktemp("paddock") / "home") as running:
        yield running
