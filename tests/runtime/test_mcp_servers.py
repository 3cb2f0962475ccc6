"""The user's own MCP servers are part of the sandbox that they were given with: both are there, or neither."""

from __future__ import annotations

import asyncio

import pytest

from paddock import errors
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store import mcp_servers
from tests.support.waiting import PATIENCE_S
from tests.support.world import World

SERVERS = {"one": {"command": "python3", "args": ["one.py"]}, "two": {"url": "https://two.example/mcp"}}


async def names(world: World, sandbox_id: str) -> list[str]:
    async with world.context.store.read() as connection:
        return [each.name for each in await mcp_servers.of(connection, sandbox_id)]


async def test_servers_given_at_create_outlive_a_server_that_dies_in_the_middle_of_it(world: World) -> None:
    world.faults.add("create", FaultKind.HANG_BEFORE)
    doomed = asyncio.create_task(world.create(mcp_servers=SERVERS))
    async with asyncio.timeout(PATIENCE_S):
        while not (rows := (await world.context.controller.list(world.alice, states=[State.CREATING])).sandboxes):
            await asyncio.sleep(0.005)
    await world.restart()
    doomed.cancel()
    assert await names(world, rows[0].sandbox_id) == ["one", "two"]


async def test_a_create_that_is_repeated_does_not_bring_back_a_server_that_was_removed(world: World) -> None:
    first = (await world.create(key="k", mcp_servers=SERVERS)).sandbox
    await world.context.mcp_servers.remove(world.alice, first.sandbox_id, "one")
    again = (await world.create(key="k", mcp_servers=SERVERS)).sandbox
    assert again.sandbox_id == first.sandbox_id
    assert await names(world, first.sandbox_id) == ["two"]


async def test_a_create_that_fails_leaves_no_secrets_behind(world: World) -> None:
    world.faults.add("create", FaultKind.REFUSE)
    with pytest.raises(errors.PaddockError):
        await world.create(mcp_servers={"one": {"command": "x", "env": {"KEY": "secret"}}})
    async with world.context.store.read() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM mcp_servers")).scalar_one() == 0
