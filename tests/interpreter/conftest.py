"""Real kernels in real sandboxes, which last as long as the session; each test has a server of its own on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from paddock.server.context import ServerContext
from tests.interpreter.place import Place, Sandbox, admin, create


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = tmp_path_factory.getbasetemp() / "made"
    place = Place(tmp_path_factory.mktemp("local"), made, "local")
    yield place
    asyncio.run(place.clear())


@pytest.fixture
async def server_context(place: Place) -> AsyncIterator[ServerContext]:
    async with place.open() as server_context:
        yield server_context


@pytest.fixture
async def sandbox(place: Place, server_context: ServerContext) -> AsyncIterator[Sandbox]:
    """Shared by tests that leave it as it was; contexts that they make are removed for them."""
    if not place.sandbox_id:
        made = await create(server_context, env={"FROM_SANDBOX": "yes"}, timeout=86_400)
        place.sandbox_id = made.sandbox_id
    shared = Sandbox(server_context, admin(server_context), place.sandbox_id)
    yield shared
    for context in (await shared.call("GET", "/contexts")).json[2:]:
        await shared.call("DELETE", f"/contexts/{context['id']}")


@pytest.fixture
async def fresh(server_context: ServerContext) -> AsyncIterator[Sandbox]:
    """One of its own, for tests that break things."""
    made = await create(server_context)
    yield made
    await server_context.controller.delete(made.who, made.sandbox_id)


@pytest.fixture
async def context(sandbox: Sandbox) -> str:
    """A Python context of its own."""
    return await sandbox.new_context()
