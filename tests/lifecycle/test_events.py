"""Events: as they come, from where the reader was, also those of other servers, to the end and no further."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import PATIENCE_S
from tests.support.world import World


async def test_a_reader_gets_what_was_and_what_comes_until_the_end(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    seen: list[str] = []
    caught_up = asyncio.Event()

    async def read() -> None:
        async for event in world.context.events.stream(world.alice, sandbox_id, after=1):
            if event is None:
                caught_up.set()
            else:
                seen.append(event.type.removeprefix("sandbox."))

    reading = asyncio.create_task(read())
    await caught_up.wait()
    assert seen == ["running"]
    async with asyncio.timeout(PATIENCE_S):
        await control.pause(world.alice, sandbox_id)
        await control.delete(world.alice, sandbox_id)
        await reading
    assert seen == ["running", "pausing", "paused", "deleting", "deleted"]


async def test_a_reader_is_told_by_word_of_mouth_and_need_not_look(
    small_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.lifecycle.events._POLL_INTERVAL_S", 3600)
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    pausing: asyncio.Task[object] | None = None
    async with asyncio.timeout(PATIENCE_S):
        async for event in small_world.context.events.stream(small_world.alice, sandbox_id, after=2):
            if event is not None:
                assert event.type == "sandbox.pausing"
                break
            pausing = asyncio.create_task(small_world.context.controller.pause(small_world.alice, sandbox_id))
    assert pausing is not None
    await pausing
