"""Events: as they come, from where the reader was, also those of other servers, to the end and no further."""

from __future__ import annotations

import asyncio

from tests.support.world import World


async def test_a_reader_gets_what_was_and_what_comes_until_the_end(world: World) -> None:
    control = world.house.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    seen: list[str] = []
    caught_up = asyncio.Event()

    async def read() -> None:
        async for event in world.house.events.stream(world.alice, sandbox_id, after=1):
            if event is None:
                caught_up.set()
            else:
                seen.append(event.type.removeprefix("sandbox."))

    reading = asyncio.create_task(read())
    await caught_up.wait()
    assert seen == ["running"]
    async with asyncio.timeout(5):
        await control.pause(world.alice, sandbox_id)
        await control.delete(world.alice, sandbox_id)
        await reading
    assert seen == ["running", "pausing", "paused", "deleting", "deleted"]


async def test_a_reader_is_told_at_once(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    loop = asyncio.get_running_loop()
    async for event in small_world.house.events.stream(small_world.alice, sandbox_id, after=2):
        if event is None:
            asked = loop.time()
            asyncio.get_running_loop().create_task(small_world.house.controller.pause(small_world.alice, sandbox_id))
        else:
            assert event.type == "sandbox.pausing"
            assert loop.time() - asked < 0.9  # by word of mouth, not by the once-a-second look
            break
