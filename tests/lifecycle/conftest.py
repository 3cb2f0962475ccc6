from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.world import World


@pytest.fixture
async def world(tmp_path: Path, database_url: str) -> AsyncIterator[World]:
    """On both databases."""
    async for each in _world(tmp_path, database_url):
        yield each


@pytest.fixture
async def small_world(tmp_path: Path) -> AsyncIterator[World]:
    """On SQLite alone, for what does not depend on the database."""
    async for each in _world(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}"):
        yield each


async def _world(home: Path, database_url: str) -> AsyncIterator[World]:
    world = World(home, database_url)
    await world.start()
    await world.make_accounts()
    yield world
    await world.end()
