"""An engine that is stopped, hangs or breaks in the middle: a clear error, nothing lost, nothing left."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from paddock import errors
from paddock.providers.base import MachineState
from tests.docker import engine
from tests.docker.place import Meddler, Place


async def swept(place: Place) -> None:
    """What a reconciler does from time to time, until nobody's is removed."""
    for path in (place.root / "drafts").iterdir():
        os.utime(path, (time.time() - 1000,) * 2)
    for _ in range(3):
        await place.provider.list()
        await place.provider._cleanup.finish()


@pytest.mark.parametrize("step", ["/containers/create", "/start", "/images/"])
async def test_a_create_that_never_got_to_the_engine_leaves_nothing_and_works_the_next_time(
    shaky: Place, meddler: Meddler, step: str
) -> None:
    spec = shaky.spec()
    meddler.cut(step)
    with pytest.raises(errors.ProviderUnavailable, match="does not answer"):
        await shaky.provider.create(spec)
    assert await shaky.provider.inspect(spec.sandbox_id) is None
    await swept(shaky)
    assert shaky.leftovers() == []
    await shaky.provider.create(spec)
    assert await (await shaky.inside(spec.sandbox_id)).says("echo here") == "here"


@pytest.mark.parametrize("step", ["/containers/create", "/start"])
async def test_a_create_whose_answer_was_lost_is_undone_and_made_once(
    shaky: Place, meddler: Meddler, step: str
) -> None:
    spec = shaky.spec()
    meddler.swallow(step)
    with pytest.raises(errors.ProviderUnavailable):
        await shaky.provider.create(spec)
    await shaky.provider.create(spec)
    await swept(shaky)
    assert shaky.containers() == [await shaky.container(spec.sandbox_id)]


async def test_an_engine_that_is_stopped_in_the_middle_of_a_create_and_comes_back(
    shaky: Place, meddler: Meddler
) -> None:
    spec = shaky.spec()
    meddler.hush("/start")
    creating = asyncio.create_task(shaky.provider.create(spec))
    await asyncio.wait_for(meddler.silent.wait(), 60)
    meddler.down(True)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    with pytest.raises(errors.ProviderUnavailable):
        await shaky.provider.list()
    meddler.down(False)
    await swept(shaky)
    assert shaky.leftovers() == []
    await shaky.provider.create(spec)
    assert len(shaky.containers()) == 1


async def test_while_the_engine_is_gone_what_runs_goes_on_and_nothing_is_called_gone(
    shaky: Place, meddler: Meddler
) -> None:
    inside = await shaky.create()
    meddler.down(True)
    assert await inside.says("echo the agent needs no engine") == "the agent needs no engine"
    for step in (shaky.provider.inspect, shaky.provider.pause, shaky.provider.resume, shaky.provider.delete):
        with pytest.raises(errors.ProviderUnavailable):
            await step(inside.sandbox_id)
    with pytest.raises(errors.ProviderUnavailable):
        await shaky.provider.list()
    with pytest.raises(errors.ProviderUnavailable):
        await shaky.create()
    meddler.down(False)
    found = await shaky.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.RUNNING
    assert await (await shaky.inside(inside.sandbox_id)).says("echo still here") == "still here"


@pytest.mark.parametrize("step", ["/pause", "/unpause", "DELETE /"])
async def test_a_step_whose_answer_was_lost_may_be_repeated(shaky: Place, meddler: Meddler, step: str) -> None:
    inside = await shaky.create()
    steps = {"/pause": shaky.provider.pause, "/unpause": shaky.provider.resume, "DELETE /": shaky.provider.delete}
    if step == "/unpause":
        await shaky.provider.pause(inside.sandbox_id)
    meddler.swallow(step)
    with pytest.raises(errors.ProviderUnavailable):
        await steps[step](inside.sandbox_id)
    await steps[step](inside.sandbox_id)
    found = await shaky.provider.inspect(inside.sandbox_id)
    expected = {"/pause": MachineState.PAUSED, "/unpause": MachineState.RUNNING, "DELETE /": None}
    assert (found and found.state) == expected[step]


async def test_a_server_does_not_start_without_its_engine_and_says_where_it_looked(
    shaky: Place, meddler: Meddler
) -> None:
    meddler.down(True)
    other = shaky.build()
    with pytest.raises(errors.ProviderUnavailable, match=r"meddler\.sock does not answer"):
        await other.start()
    await other.close()
    meddler.down(False)


async def test_an_image_that_went_away_is_said_and_what_stands_on_it_lives_on(place: Place) -> None:
    inside = await place.create()
    place.provider._images._listed.append("gone:1")
    with pytest.raises(errors.TemplateNotFound, match="docker pull gone:1"):
        await place.create(template_id="gone:1")
    assert await inside.says("echo here") == "here"
    assert len(engine.containers(f"paddock.installation={(place.root / 'installation').read_text()}")) == 1
