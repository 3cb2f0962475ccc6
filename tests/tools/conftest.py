"""A real sandbox of the local provider, which lasts as long as the session; each test has a server of its own on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from paddock.server.context import ServerContext
from tests.interpreter.place import Place, admin, create
from tests.tools.workbench import Workbench


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("tools"), tmp_path_factory.getbasetemp() / "made", "local")
    yield made
    asyncio.run(made.clear())


@pytest.fixture
async def context(place: Place) -> AsyncIterator[ServerContext]:
    async with place.open() as context:
        yield context


@pytest.fixture
async def work(place: Place, context: ServerContext) -> Workbench:
    """The shared sandbox, in a folder of this test's own below /workspace."""
    if not place.sandbox_id:
        made = await create(context, env={"FROM_SANDBOX": "yes"}, timeout=86_400)
        place.sandbox_id = made.sandbox_id
    return Workbench(context, admin(context), place.sandbox_id)


@pytest.fixture
async def fresh(context: ServerContext) -> AsyncIterator[Workbench]:
    """A sandbox of its own, for tests that change how the next ones would find it."""
    made = await create(context)
    yield Workbench(context, made.who, made.sandbox_id)
    await context.controller.delete(made.who, made.sandbox_id)
