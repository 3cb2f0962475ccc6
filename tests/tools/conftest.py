"""A real sandbox of the local provider, which lasts as long as the session; each test has a server of its own on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from paddock.lifecycle.house import House
from tests.interpreter.place import Place, admin, create
from tests.tools.workbench import Workbench


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("tools"), tmp_path_factory.getbasetemp() / "made", "local")
    yield made
    asyncio.run(made.clear())


@pytest.fixture
async def house(place: Place) -> AsyncIterator[House]:
    async with place.open() as house:
        yield house


@pytest.fixture
async def work(place: Place, house: House) -> Workbench:
    """The shared sandbox, in a folder of this test's own below /workspace."""
    if not place.sandbox_id:
        made = await create(house, env={"FROM_SANDBOX": "yes"}, timeout=86_400)
        place.sandbox_id = made.sandbox_id
    return Workbench(house, admin(house), place.sandbox_id)


@pytest.fixture
async def fresh(house: House) -> AsyncIterator[Workbench]:
    """A sandbox of its own, for tests that change how the next ones would find it."""
    made = await create(house)
    yield Workbench(house, made.who, made.sandbox_id)
    await house.controller.delete(made.who, made.sandbox_id)
