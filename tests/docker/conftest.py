from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docker import engine
from tests.docker.place import Meddler, Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Skips where no engine answers. What a test leaves behind fails it."""
    made = Place(tmp_path, engine.address())
    await made.provider.start()
    yield made
    await made.clear()
    assert made.leftovers() == []


@pytest.fixture
async def meddler(tmp_path: Path) -> AsyncIterator[Meddler]:
    made = Meddler(tmp_path, engine.address())
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def shaky(meddler: Meddler, tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose engine somebody meddles with."""
    made = Place(tmp_path, meddler.address)
    await made.provider.start()
    yield made
    await made.clear()
    assert made.leftovers() == []


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Place]:
    """Reached through the engine alone, as if it were elsewhere."""
    made = Place(tmp_path, engine.far_address(), way="far", runtime=engine.RUNTIME)
    await made.provider.start()
    yield made
    await made.clear()
    assert made.leftovers() == []
