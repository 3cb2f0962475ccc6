"""The composition root: builds everything that one server process needs, and passes it down."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import structlog

from paddock.accounts.accounts import Accounts
from paddock.accounts.byte_budget import ByteBudget
from paddock.accounts.quotas import StreamQuota
from paddock.accounts.tokens import Tokens
from paddock.clock import Clock, Pace, SystemClock
from paddock.egress.bandwidth import Bandwidths
from paddock.errors import StoreUnavailable, Unavailable
from paddock.fair_semaphore import FairSemaphore
from paddock.ids import new_server_id
from paddock.interpreter.installation import Installation
from paddock.lifecycle.activity import Activity, RowCache
from paddock.lifecycle.bus import Bus, PeerChanges
from paddock.lifecycle.confinement import Confinement
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.creation import SandboxCreator
from paddock.lifecycle.disk_monitor import DiskMonitor
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.events import Events
from paddock.lifecycle.extension import LifecycleExtension, LifecycleParts
from paddock.lifecycle.idempotency import Idempotency
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.journal_file import JournalFile
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.pool import Pool
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.reconciler import Reconciler
from paddock.lifecycle.sampling import UsageSampler
from paddock.lifecycle.scheduler import SandboxQueueScheduler
from paddock.lifecycle.transitions import Transitions
from paddock.lifecycle.usage import UsageReport
from paddock.providers.base import CRASHED, Provider
from paddock.providers.registry import build_providers, default_provider
from paddock.runtime.built_in_services import BrowserService, VsCodeService
from paddock.runtime.code import CodeRunner, InterpreterService
from paddock.runtime.commands import Commands
from paddock.runtime.files import SandboxFiles
from paddock.runtime.mcp_servers import McpServers
from paddock.runtime.port_links import PortLinks
from paddock.runtime.service_launch import BuiltInService
from paddock.runtime.services import Services
from paddock.runtime.tools import Tools
from paddock.server.addon_installs import AddonInstalls
from paddock.server.heap_trimmer import HeapTrimmer
from paddock.server.loop_watchdog import LoopWatchdog
from paddock.settings import Settings
from paddock.store import sandboxes, servers
from paddock.store.database import Store
from paddock.tools.catalogue import usual_tools
from paddock.workers import Workers

log = structlog.get_logger(__name__)

_RESTART_DELAY_S = 1.0
_HEALTH_INTERVAL_S = 1.0
_HEALTH_TIMEOUT_S = 2.0
_MAX_LISTINGS, _MAX_USER_LISTINGS = 8, 2
"""Concurrent directory listings. One may have 100,000 entries and 64 MB, and take a multiple of that in memory, and its
size is known only at its end."""


Extension = TypeVar("Extension", bound=LifecycleExtension)


class AlreadyRunning(Unavailable):
    """Two servers on one SQLite file would each take the other for dead."""

    code = "already_running"


class ServerContext:
    def __init__(self, settings: Settings, clock: Clock, providers: Mapping[str, Provider], default: str) -> None:
        self.settings = settings
        self.clock = clock
        self.providers = providers
        self.default_provider = default
        self.server_id = new_server_id()
        self.store = Store(settings.database_url)
        self._build_accounts()
        self._build_lifecycle()
        self._build_runtime()
        self._build_background_work()
        self._pace = Pace(clock)
        self._loops: list[asyncio.Task[None]] = []
        self._lock: int | None = None
        self._health: asyncio.Task[bool] | None = None
        self._health_until = 0.0

    def _build_accounts(self) -> None:
        settings = self.settings
        self.accounts = Accounts(settings, self.clock, self.store)
        self.tokens = Tokens(self.clock, self.store)
        self.streams = StreamQuota()
        self.in_flight = ByteBudget(settings.max_bytes_in_flight, settings.user_bytes_in_flight)
        self.listings = FairSemaphore(_MAX_LISTINGS, _MAX_USER_LISTINGS)
        self.bandwidths = Bandwidths(self.accounts.bytes_per_second)

    def _build_lifecycle(self) -> None:
        settings, clock, store, server_id = self.settings, self.clock, self.store, self.server_id
        self.bus = Bus()
        self.row_cache = RowCache(store)
        self.idempotency = Idempotency(clock, store)
        self.disk_monitor = DiskMonitor(settings, store, self.providers)
        self.nodes = Nodes(settings, clock, store, self.providers, server_id)
        self.calls = ProviderCalls(settings, self.providers, self.nodes)
        self.pool = Pool(settings, clock, store, self.providers, self.nodes, server_id)
        self.engine = Engine(settings, clock, store, self.calls, self.pool, self.bus, self.nodes, server_id)
        self.journal_file = JournalFile(settings.home / "notes", server_id)
        self.journal = Journal(clock, store, self.bus, self.journal_file, server_id)
        self.activity = Activity(self.journal)
        self.transitions = Transitions(
            settings, clock, store, self.accounts, self.engine, self.calls, self.nodes, server_id
        )
        creator = SandboxCreator(
            settings,
            clock,
            store,
            accounts=self.accounts,
            engine=self.engine,
            calls=self.calls,
            transitions=self.transitions,
            idempotency=self.idempotency,
            disk_monitor=self.disk_monitor,
            bus=self.bus,
            nodes=self.nodes,
            providers=self.providers.keys(),
            default_provider=self.default_provider,
            server_id=server_id,
        )
        self.controller = Controller(
            settings,
            clock,
            store,
            creator=creator,
            engine=self.engine,
            calls=self.calls,
            transitions=self.transitions,
            journal=self.journal,
            activity=self.activity,
            row_cache=self.row_cache,
            nodes=self.nodes,
        )
        self.confinement = Confinement(settings, clock, store, self.controller, self.transitions, self.calls, self.bus)
        self.events = Events(clock, store, self.controller, self.journal, self.bus)
        self.usage = UsageReport(clock, store, self.controller, self.journal)

    def _build_runtime(self) -> None:
        settings, controller, in_flight = self.settings, self.controller, self.in_flight
        interpreter = Installation(settings.home / "interpreter")
        built_in: list[BuiltInService] = [
            InterpreterService(interpreter),
            BrowserService(),
            VsCodeService(settings.vscode_port),
        ]
        self.commands = Commands(controller, self.idempotency, settings, self.clock)
        self.files = SandboxFiles(controller, settings)
        self.services = Services(controller, self.store, built_in)
        self.workers = Workers()
        self.port_links = PortLinks(settings, self.clock, controller, self.tokens)
        self.code = CodeRunner(controller, self.services, interpreter, self.workers, in_flight, settings, self.clock)
        self.mcp_servers = McpServers(controller, self.store, self.row_cache, self.calls, self.accounts, in_flight)
        self.addons = AddonInstalls(settings, self.providers.keys())
        self.tools = Tools(
            controller,
            self.services,
            self.port_links,
            self.mcp_servers,
            self.workers,
            in_flight,
            usual_tools(settings.mcp_tools),
            settings.mcp_port,
        )

    def _build_background_work(self) -> None:
        settings, clock, store, server_id = self.settings, self.clock, self.store, self.server_id
        self.peer_changes = PeerChanges(clock, store, self.bus, self.nodes)
        self.usage_sampler = UsageSampler(clock, store, self.calls, self.nodes)
        self.scheduler = SandboxQueueScheduler(
            settings, clock, store, self.controller, self.bus, self.journal, self.nodes, server_id
        )
        self.reconciler = Reconciler(
            settings,
            clock,
            store,
            self.providers,
            self.engine,
            self.calls,
            self.transitions,
            self.journal,
            self.nodes,
            server_id,
        )
        self.watchdog = LoopWatchdog(settings.loop_stall_ms / 1000)
        self._parts = LifecycleParts(
            settings, clock, store, self.controller, self.transitions, self.engine, self.calls, self.journal
        )
        self._extensions: dict[type[LifecycleExtension], LifecycleExtension] = {}

    def extension(self, kind: type[Extension]) -> Extension:
        """The vendor's lifecycle extension of this class; created at first use."""
        found = self._extensions.get(kind)
        if found is None:
            found = self._extensions[kind] = kind(self._parts)
        assert isinstance(found, kind)  # noqa: S101 - for the type checker
        return found

    async def open(self, *, loops: bool = True) -> None:
        """Ready to serve on return. ``loops=False`` starts no scheduler and reconciler; tests drive them by hand."""
        self._lock = _only_server(self.store.file)
        try:
            await self.store.open()
            await self.tokens.open()
            async with self.store.write() as connection:
                await sandboxes.hide_git_credentials(connection)
            async with self.store.write() as connection:
                if self.store.sqlite:
                    await servers.forget_others(connection, self.server_id)
                await servers.beat(connection, self.server_id, self.clock.now())
            await self.nodes.open()
            self.journal_file.open()
            await self.journal.recover()
            for provider in self.providers.values():
                provider.tell(self._hear)
                provider.limit_bandwidth(self.bandwidths)
                await provider.start()
            await self.disk_monitor.look()
        except BaseException:
            self.journal_file.close()
            await self.store.close()
            self._unlock()
            raise
        self.watchdog.start()
        running = [self.journal.run, self._beat, HeapTrimmer().run]
        if loops:
            self.code.prepare()
            running += [
                self.disk_monitor.run,
                self.activity.run,
                self.scheduler.run,
                self.reconciler.run,
                self.pool.run,
                self.usage_sampler.run,
                self.peer_changes.run,
            ]
        self._loops = [asyncio.create_task(_restarting(loop, self._pace)) for loop in running]
        log.info("open", server_id=self.server_id, provider=self.default_provider, database=self.store.url.drivername)

    async def close(self) -> None:
        """Drain: finish running operations, write what is pending, then detach from the sandboxes, which keep
        running."""
        await self.code.close()
        await self.workers.close()
        await self.addons.close()
        await self.services.close()
        await self.mcp_servers.close()
        await self.transitions.close(self.settings.drain_timeout)
        await self._stop_loops()
        await self.pool.drain()
        await self.accounts.close()
        all_written = await self.journal.flush()
        with contextlib.suppress(StoreUnavailable):
            async with self.store.write() as connection:
                await servers.leave(connection, self.server_id)
                await servers.leave_nodes(connection, self.server_id)
                if all_written:
                    await servers.forget_notes(connection, [self.server_id])
        for provider in self.providers.values():
            await provider.close()
        self.journal_file.close()
        if self._health is not None:
            await self._health
        await self.store.close()
        self.watchdog.stop()
        self._unlock()

    async def healthy(self) -> bool:
        """Whether the database accepts a write: one that is full or read-only is still readable, but cannot serve
        requests.

        Checked once a second at most; no answer within the timeout counts as unhealthy.
        """
        now = asyncio.get_running_loop().time()
        if self._health is None or (self._health.done() and now >= self._health_until):
            self._health = asyncio.create_task(self._can_write())
            self._health_until = now + _HEALTH_INTERVAL_S
        await asyncio.wait({self._health}, timeout=_HEALTH_TIMEOUT_S)
        return self._health.done() and self._health.result()

    async def _can_write(self) -> bool:
        try:
            async with self.store.write() as connection:
                await servers.beat(connection, self.server_id, self.clock.now())
            return await self.store.intact()
        except StoreUnavailable:
            return False

    async def _hear(self, sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Handle an event that a provider reports on its own."""
        await self.events.record_event(sandbox_id, kind, data)
        if kind == CRASHED:
            await self.reconciler.crashed(sandbox_id, data["message"])

    async def _stop_loops(self) -> None:
        """Each loop ends between two rounds; one that does not in time is cancelled."""
        self._pace.stop()
        self.journal.wake()
        self.pool.wake()
        if self._loops:
            _, late = await asyncio.wait(self._loops, timeout=self.settings.drain_timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []

    async def _beat(self, pace: Pace) -> None:
        while await pace.rest(self.settings.server_ttl / 4):
            with contextlib.suppress(StoreUnavailable):
                async with self.store.write() as connection:
                    await servers.beat(connection, self.server_id, self.clock.now())
                await self.nodes.beat()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def build_context(
    settings: Settings, *, clock: Clock | None = None, providers: Mapping[str, Provider] | None = None
) -> ServerContext:
    clock = clock or SystemClock()
    if providers is None:
        name = default_provider(settings)
        return ServerContext(settings, clock, build_providers(settings, clock, name), name)
    return ServerContext(settings, clock, providers, settings.sandbox_provider or next(iter(providers)))


def ensure_free(settings: Settings) -> None:
    """Raise now, instead of in :meth:`ServerContext.open`, if another server uses the database."""
    lock = _only_server(Store(settings.database_url).file)
    if lock is not None:
        os.close(lock)


def _only_server(database: Path | None) -> int | None:
    """Lock the SQLite database for this server. The kernel releases the lock when the process ends, for any reason."""
    if database is None:
        return None
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(database.with_name(database.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AlreadyRunning(
            f"Another Paddock server uses {database.name} already. Stop it first, or give this one its own "
            "PADDOCK_HOME. Several servers on one database need PostgreSQL (DATABASE_URL)."
        ) from None
    return lock


async def _restarting(loop: Callable[[Pace], Awaitable[None]], pace: Pace) -> None:
    """Run a loop until it is stopped. If it raises, log that and restart it."""
    while True:
        try:
            await loop(pace)
            return
        except Exception:
            log.exception("a background loop died and is begun anew")
        if not await pace.rest(_RESTART_DELAY_S):
            return
