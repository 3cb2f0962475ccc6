"""The house: one server per SQLite file, a first key for its owner, an orderly close."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from paddock.accounts.first_key import first_key, local_accounts
from paddock.errors import ShuttingDown, Unauthorized
from paddock.models import CreateKey, State
from paddock.providers.faults import FaultKind
from paddock.server.context import AlreadyRunning
from paddock.settings import Settings
from tests.support.world import World


async def test_a_second_server_on_the_same_sqlite_file_is_refused(small_world: World) -> None:
    with pytest.raises(AlreadyRunning, match="PostgreSQL"):
        await small_world.another_house().open()
    assert await small_world.context.healthy()


async def test_two_servers_share_one_postgres(world: World) -> None:
    if world.context.store.sqlite:
        return  # the test above
    other = world.another_house()
    await other.open(loops=False)
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await other.controller.pause(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.PAUSED
    await other.close()


async def test_everything_at_once_from_two_servers_leaves_a_sandbox_whole(world: World) -> None:
    if world.context.store.sqlite:
        return
    other = world.another_house()
    await other.open(loops=False)
    sandbox_id = (await world.create()).sandbox.sandbox_id
    calls = [
        getattr(context.controller, action)(world.alice, sandbox_id)
        for _ in range(6)
        for context in (world.context, other)
        for action in ("pause", "resume")
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert (await world.machines())[sandbox_id] == (await world.state(sandbox_id)).value
    assert [event.seq for event in await world.events(sandbox_id)] == list(
        range(1, (await world.row(sandbox_id)).event_seq + 1)
    )
    await other.close()


async def test_closing_waits_for_what_has_begun_and_takes_nothing_new(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    small_world.faults.add("pause", FaultKind.SLOW, seconds=0.3)
    pausing = asyncio.create_task(small_world.context.controller.pause(small_world.alice, sandbox_id))
    while await small_world.state(sandbox_id) is not State.PAUSING:
        await asyncio.sleep(0.005)
    closing = asyncio.create_task(small_world.context.close())
    await asyncio.sleep(0)
    with pytest.raises(ShuttingDown):
        await small_world.create()
    await closing
    await asyncio.wait([pausing])
    await small_world.start()
    assert await small_world.state(sandbox_id) is State.PAUSED


async def test_the_first_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    settings = Settings(PADDOCK_HOME=tmp_path / "home", _env_file=None)
    first = await first_key(settings)
    again = await first_key(settings)
    assert first.new and not again.new and first.key == again.key
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o700
    for private in (settings.key_file, settings.home / "paddock.db"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert first.key.encode() not in (settings.home / "paddock.db").read_bytes()


async def test_a_key_file_of_another_database_is_replaced(tmp_path: Path) -> None:
    settings = Settings(PADDOCK_HOME=tmp_path, _env_file=None)
    settings.key_file.write_text("e2b_" + "0" * 40)
    made = await first_key(settings)
    assert made.new
    async with local_accounts(settings) as (accounts, _):
        assert (await accounts.authenticate(made.key)).is_admin


async def test_the_owner_of_the_database_makes_keys_without_a_server(tmp_path: Path) -> None:
    settings = Settings(PADDOCK_HOME=tmp_path, _env_file=None)
    async with local_accounts(settings) as (accounts, owner):
        _, secret = await accounts.create_key(owner, CreateKey(name="ci"))
        principal = await accounts.authenticate(secret)
        assert (principal.user_id, principal.is_admin) == ("ci", False)
        with pytest.raises(Unauthorized):
            await accounts.authenticate(secret + "0")
