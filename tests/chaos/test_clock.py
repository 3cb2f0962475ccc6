"""The system's clock is set under a real server, by an hour: what its clients see is the time that passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.accounts.first_key import first_key
from paddock.settings import Settings
from tests.chaos.clock import HOUR, SharedClock
from tests.chaos.slot import Slot
from tests.support import leaks, local_home

pytestmark = pytest.mark.slow

_TIMEOUT_S = 4
_LATE_SLACK_S = 12.0
"""On a busy machine. What goes wrong with a clock goes wrong by half a minute at least."""
_ROUNDING_S = 0.3
_JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])


class Place:
    """One server whose clock the test sets."""

    def __init__(self, slot: Slot, clock: SharedClock, client: httpx.AsyncClient) -> None:
        self.slot = slot
        self.clock = clock
        self.client = client

    async def ask(self, method: str, path: str, **fields: Any) -> dict[str, Any]:
        answer = await self.client.request(method, path, **({"json": fields} if fields else {}))
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def create(self, timeout: int) -> str:
        made = await self.ask("POST", "/sandboxes/create", user_id="alice", timeout=timeout)
        return str(made["sandbox_id"])

    async def set_clock(self, seconds: float) -> None:
        self.clock.set_offset(seconds)
        assert await self.clock.until_followed(0, lambda: self.slot.alive)

    async def left(self, sandbox_id: str) -> float:
        """Seconds until its deadline, by the clock that everybody on this machine has now."""
        told = (await self.ask("GET", f"/sandboxes/{sandbox_id}"))["expires_at"]
        return datetime.fromisoformat(told).timestamp() - self.clock.now()

    async def until_paused(self, sandbox_id: str) -> None:
        """To look is no use."""
        async with asyncio.timeout(_TIMEOUT_S + 2 * _LATE_SLACK_S):
            while (await self.ask("GET", f"/sandboxes/{sandbox_id}/status"))["status"] != "paused":
                await asyncio.sleep(0.02)

    async def billed(self, sandbox_id: str) -> float:
        return float((await self.ask("GET", f"/sandboxes/{sandbox_id}/usage"))["total"]["seconds"])


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    environment = {
        "SANDBOX_PROVIDER": "local",
        "PADDOCK_POOL_SIZE": "0",
        "PADDOCK_HOME": str(tmp_path / "home"),
        "PADDOCK_SCHEDULER_INTERVAL": "0.1",
        "PADDOCK_RECONCILE_INTERVAL": "1",
    }
    local_home.lay_out(tmp_path / "home")
    settings = Settings(**environment, _env_file=None)  # type: ignore[arg-type]
    key = (await first_key(settings)).key
    clock = SharedClock(tmp_path / "clock")
    slot = Slot(environment, 0, tmp_path, clock)
    await slot.start(fuse=None)
    async with httpx.AsyncClient(base_url=slot.url, headers={"X-API-Key": key}, timeout=60) as client:
        yield Place(slot, clock, client)
    await slot.dead(within=0)
    await local_home.clear(tmp_path / "home")
    leaks.check_home(settings.home, slot.last_errors())


@_JUMPS
async def test_a_timeout_lasts_as_long_as_it_was_asked_for(place: Place, jump: float) -> None:
    began = time.monotonic()
    sandbox_id = await place.create(timeout=_TIMEOUT_S)
    await place.set_clock(jump)
    assert 0 < await place.left(sandbox_id) <= _TIMEOUT_S + _ROUNDING_S
    await place.until_paused(sandbox_id)
    took = time.monotonic() - began
    assert _TIMEOUT_S - _ROUNDING_S <= took <= _TIMEOUT_S + _LATE_SLACK_S, took


@_JUMPS
async def test_what_is_billed_is_what_passed(place: Place, jump: float) -> None:
    began = time.monotonic()
    sandbox_id = await place.create(timeout=1000)
    made = time.monotonic()
    for offset in (jump, 0, jump):
        await place.set_clock(offset)
        least = time.monotonic() - made
        billed = await place.billed(sandbox_id)
        assert least - _ROUNDING_S <= billed <= time.monotonic() - began + _ROUNDING_S
    least = time.monotonic() - made
    await place.ask("POST", "/sandboxes/pause", sandbox_id=sandbox_id)
    most = time.monotonic() - began
    await place.set_clock(-jump)
    assert least - _ROUNDING_S <= await place.billed(sandbox_id) <= most + _ROUNDING_S, "it is paused"


async def test_a_clock_that_was_set_back_while_no_server_ran_delays_no_deadline_for_long(place: Place) -> None:
    sandbox_id = await place.create(timeout=_TIMEOUT_S)
    await place.slot.dead(within=0)
    place.clock.set_offset(-HOUR)
    await place.slot.start(fuse=None)
    began = time.monotonic()
    await place.until_paused(sandbox_id)
    assert time.monotonic() - began <= _TIMEOUT_S + _LATE_SLACK_S
