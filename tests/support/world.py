"""A server without its socket: a house on a real database and the fake provider, its loops driven by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from paddock.clock import Clock, ManualClock
from paddock.errors import StoreUnavailable
from paddock.lifecycle.accounts import Principal
from paddock.lifecycle.controller import Seen
from paddock.lifecycle.house import House, build_house
from paddock.models import CreateKey, CreateSandbox, Role, State
from paddock.providers.fake import FakeProvider, Faults
from paddock.settings import Settings
from paddock.store import deadlines, events, sandboxes
from paddock.store.records import Deadline, Event, Sandbox
from tests.support import leaks, schema


class World:
    """Holds what outlives a server (database, provider folder, clock) and the server that is up now."""

    def __init__(self, home: Path, database_url: str, clock: Clock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        self.home = home
        self.faults = Faults()
        self.settings = Settings(
            PADDOCK_HOME=home,
            DATABASE_URL=database_url,
            SANDBOX_PROVIDER="fake",
            _env_file=None,
            **({"PADDOCK_BUSY_WAIT": 5, "PADDOCK_PROVIDER_TIMEOUT": 5, "PADDOCK_LOOP_STALL_MS": 0} | settings),
        )
        self.house: House
        self.alice: Principal
        self.bob: Principal
        self.admin: Principal

    async def start(self) -> House:
        await schema.give(self.settings.database_url)
        self.house = self.another_house()
        await self.house.open(loops=False)
        return self.house

    def another_house(self) -> House:
        """A further server on the same database and provider."""
        provider = FakeProvider(self.home / "fake", self.clock, self.faults)
        return build_house(self.settings, clock=self.clock, providers={"fake": provider})

    async def stop(self) -> None:
        with suppress(StoreUnavailable):  # some tests take the database away
            await leaks.check_store(self.house.store)
        await self.house.close()

    async def crash(self) -> None:
        """The server dies without a word: nothing is flushed, no lease given back."""
        for task in self.house._loops:
            task.cancel()
        for task in [*self.house.transitions._tasks, *self.house.accounts._notes]:
            task.cancel()
        self.house.logbook._size = -1  # whatever is noted stays in its file
        self.house.logbook.close()
        await self.house.store.close()
        self.house._unlock()

    async def restart(self) -> House:
        await self.crash()
        return await self.start()

    async def make_accounts(self) -> None:
        accounts = self.house.accounts
        owner = Principal("root", Role.ADMIN, 0, self.house.accounts.quota_of(_admin()))
        for name, role in (("alice", Role.MEMBER), ("bob", Role.MEMBER), ("admin", Role.ADMIN)):
            _, secret = await accounts.create_key(owner, CreateKey(name=name, role=role))
            setattr(self, name, await accounts.authenticate(secret))

    # Short words for tests

    async def create(self, who: Principal | None = None, *, key: str | None = None, **fields: Any) -> Seen:
        request = CreateSandbox(**({"user_id": "alice"} | fields))
        return await self.house.controller.create(who or self.alice, request, key)

    async def row(self, sandbox_id: str) -> Sandbox:
        await self.house.journal.settled(sandbox_id)
        async with self.house.store.read() as connection:
            row = await sandboxes.get(connection, sandbox_id)
        assert row is not None
        return row

    async def state(self, sandbox_id: str) -> State:
        return (await self.row(sandbox_id)).state

    async def deadline(self, sandbox_id: str) -> Deadline | None:
        await self.house.journal.settled(sandbox_id)
        async with self.house.store.read() as connection:
            return (await deadlines.next_of(connection, [sandbox_id])).get(sandbox_id)

    async def events(self, sandbox_id: str) -> list[Event]:
        await self.house.journal.settled(sandbox_id)
        async with self.house.store.read() as connection:
            return await events.after(connection, sandbox_id, 0, 10_000)

    async def event_types(self, sandbox_id: str) -> list[str]:
        return [event.type.removeprefix("sandbox.") for event in await self.events(sandbox_id)]

    async def machines(self) -> dict[str, str]:
        """What the provider really has."""
        provider = FakeProvider(self.home / "fake", self.clock)
        return {found.sandbox_id: found.state.value for found in await provider.list()}

    async def pass_time(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        await self.clock.advance(seconds)


def _admin() -> Any:
    from paddock.store.records import User

    return User("root", Role.ADMIN, False, None, None, None, None, 0.0)
