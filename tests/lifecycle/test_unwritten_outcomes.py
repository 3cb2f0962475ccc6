"""The machine did what was asked for, and the database cannot take it down: what the caller hears is true."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from paddock.errors import StoreFull
from paddock.models import State
from paddock.store import database, sandboxes
from tests.support.world import World


class Full:
    """A disk on which no outcome can be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = 0
        change = sandboxes.change

        async def changed(connection: Any, sandbox: Any, **values: Any) -> Any:
            if values.get("state") in (State.PAUSED, State.RUNNING, State.DELETED):
                self.refused += 1
                raise StoreFull("The database cannot be used right now (full). Nothing was changed; try again.")
            return await change(connection, sandbox, **values)

        monkeypatch.setattr(sandboxes, "change", changed)


async def test_an_outcome_that_cannot_be_written_is_told_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    controller = world.context.controller
    steps: list[tuple[Callable[..., Awaitable[object]], State, State]] = [
        (controller.pause, State.PAUSING, State.PAUSED),
        (controller.resume, State.RESUMING, State.RUNNING),
        (controller.delete, State.DELETING, State.DELETED),
    ]
    monkeypatch.setattr("paddock.lifecycle.engine.OUTCOME_PATIENCE_S", 0.0)
    for act, via, done in steps:
        with monkeypatch.context() as patched:
            Full(patched)
            with pytest.raises(StoreFull, match=rf"The sandbox is {done.value}, but .* says '{via.value}'") as told:
                await act(world.alice, sandbox_id)
        assert "Nothing was changed" not in told.value.message
        assert await world.machines() == ({} if done is State.DELETED else {sandbox_id: done.value})
        await world.context.reconciler.run_once()
        assert await world.state(sandbox_id) is done


async def test_an_outcome_is_tried_for_longer_than_an_intent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert database.OUTCOME_PATIENCE_S > database.INTENT_PATIENCE_S
    sandbox_id = (await world.create()).sandbox.sandbox_id
    monkeypatch.setattr(database, "INTENT_PATIENCE_S", 0.0)
    with monkeypatch.context() as patched:
        full, now = Full(patched), time.monotonic

        def later() -> float:
            if full.refused == 100:
                patched.undo()  # there is room again
            return now() + full.refused * 0.1

        patched.setattr(database, "_FREEING_RETRY_S", 0.0)
        patched.setattr(database.time, "monotonic", later)
        await world.context.controller.pause(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.PAUSED
