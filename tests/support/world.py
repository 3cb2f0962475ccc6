"""A server without its socket: a house on a real database and the local provider, its loops driven by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from paddock.accounts.accounts import Principal
from paddock.clock import Clock, ManualClock
from paddock.errors import PaddockError, StoreUnavailable
from paddock.lifecycle.controller import SandboxView
from paddock.models import CreateKey, CreateSandbox, Role, State
from paddock.providers.base import Capacity, Provider, Shape
from paddock.providers.faults import Faults, FaultyProvider, with_faults
from paddock.providers.local import LocalProvider
from paddock.server.context import ServerContext, build_context
from paddock.settings import Settings
from paddock.store import deadlines, events, sandboxes
from paddock.store.records import Deadline, EventRow, SandboxRow
from tests.support import leaks, local_home, schema


class AnySize(LocalProvider):
    """Says nothing of the size of this machine, so that tests mean the same on every one."""

    async def capacity(self) -> Capacity:
        return Capacity()


_QUICK = {
    "PADDOCK_BUSY_WAIT": 5,
    "PADDOCK_PROVIDER_TIMEOUT": 30,
    "PADDOCK_DRAIN_TIMEOUT": 5,
    "PADDOCK_LOOP_STALL_MS": 0,
    "PADDOCK_DEFAULT_DISK_MB": 64,
}


class World:
    """Holds what outlives a server (database, provider folder, clock) and the server that is up now."""

    def __init__(self, home: Path, database_url: str, clock: Clock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        self.home = home
        self.faults = Faults()
        self.settings = Settings(
            PADDOCK_HOME=home,
            DATABASE_URL=database_url,
            SANDBOX_PROVIDER="local",
            _env_file=None,
            **(_QUICK | settings),
        )
        self.context: ServerContext
        self.alice: Principal
        self.bob: Principal
        self.admin: Principal

    async def start(self) -> ServerContext:
        await schema.give(self.settings.database_url)
        self.context = self.another_house()
        await self.context.open(loops=False)
        return self.context

    def another_house(self) -> ServerContext:
        """A further server on the same database and the same sandboxes."""
        provider = self.make_provider()
        providers = {provider.name: with_faults(provider, self.faults)}
        return build_context(self.settings, clock=self.clock, providers=providers)

    def make_provider(self) -> Provider:
        """As each server has one. Faults strike around it."""
        return AnySize(local_home.lay_out(self.home), self.clock)

    @property
    def provider(self) -> FaultyProvider:
        """Of the server that is up now."""
        provider = self.context.providers[self.context.default_provider]
        assert isinstance(provider, FaultyProvider)
        return provider

    @asynccontextmanager
    async def another_provider(self) -> AsyncIterator[Provider]:
        """Whoever acts on the sandboxes behind the server's back; no fault strikes it."""
        provider = self.make_provider()
        await provider.start()
        try:
            yield provider
        finally:
            await provider.close()

    async def stop(self) -> None:
        with suppress(StoreUnavailable):  # some tests take the database away
            await leaks.check_store(self.context.store)
        await self.context.close()

    async def end(self) -> None:
        """Stop, and leave nothing behind: sandboxes outlive their server on purpose."""
        self.faults.clear()
        try:
            with suppress(PaddockError):  # what cannot be deleted so is cleared away below
                for provider in self.context.providers.values():
                    await local_home.delete_all(provider)
            await self.stop()
        finally:
            await local_home.clear(self.home)

    async def crash(self) -> None:
        """The server dies without a word: nothing is flushed, no lease given back."""
        for task in self.context._loops:
            task.cancel()
        for task in [*self.context.transitions._tasks, *self.context.accounts._notes]:
            task.cancel()
        self.context.journal_file._size = -1  # whatever is noted stays in its file
        self.context.journal_file.close()
        await self.context.store.close()
        for provider in self.context.providers.values():
            await provider.close()  # which ends nothing and writes nothing
        self.context._unlock()

    async def restart(self) -> ServerContext:
        await self.crash()
        return await self.start()

    async def make_accounts(self) -> None:
        accounts = self.context.accounts
        owner = Principal("root", Role.ADMIN, 0, self.context.accounts.quota_of(_admin()))
        for name, role in (("alice", Role.MEMBER), ("bob", Role.MEMBER), ("admin", Role.ADMIN)):
            _, secret = await accounts.create_key(owner, CreateKey(name=name, role=role))
            setattr(self, name, await accounts.authenticate(secret))

    # Short words for tests

    async def create(self, who: Principal | None = None, *, key: str | None = None, **fields: Any) -> SandboxView:
        request = CreateSandbox(**({"user_id": "alice"} | fields))
        return await self.context.controller.create(who or self.alice, request, key)

    async def row(self, sandbox_id: str) -> SandboxRow:
        await self.context.journal.settled(sandbox_id)
        async with self.context.store.read() as connection:
            row = await sandboxes.get(connection, sandbox_id)
        assert row is not None
        return row

    async def state(self, sandbox_id: str) -> State:
        return (await self.row(sandbox_id)).state

    async def deadline(self, sandbox_id: str) -> Deadline | None:
        await self.context.journal.settled(sandbox_id)
        async with self.context.store.read() as connection:
            return (await deadlines.next_of(connection, [sandbox_id])).get(sandbox_id)

    async def events(self, sandbox_id: str) -> list[EventRow]:
        await self.context.journal.settled(sandbox_id)
        async with self.context.store.read() as connection:
            return await events.after(connection, sandbox_id, 0, 10_000)

    async def event_types(self, sandbox_id: str) -> list[str]:
        return [event.type.removeprefix("sandbox.") for event in await self.events(sandbox_id)]

    async def machines(self) -> dict[str, str]:
        """What there really is."""
        return local_home.machines(self.home)

    async def ready(self) -> dict[Shape, int]:
        """What really stands ready."""
        return local_home.warm_machines(self.home)

    async def pass_time(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        await self.clock.advance(seconds)


async def worlds(home: Path, database_url: str) -> AsyncIterator[World]:
    """One with its first accounts, for a fixture."""
    world = World(home, database_url)
    await world.start()
    await world.make_accounts()
    yield world
    await world.end()


def _admin() -> Any:
    from paddock.store.records import UserRow

    return UserRow("root", Role.ADMIN, False, None, None, None, None, 0.0)
