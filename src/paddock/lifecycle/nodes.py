"""Which sandboxes this server can act on when several servers share a database.

A sandbox belongs to the node that created it. For the ``local`` and ``docker`` providers a node is a home directory,
for a vendor an installation's name. Servers of the same node act for each other. Of sandboxes on other nodes a server
knows only the row, so it never draws conclusions about their machines.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock
from paddock.errors import ProviderUnavailable, SandboxElsewhere, Unavailable
from paddock.providers.base import Provider
from paddock.settings import Settings
from paddock.store import servers
from paddock.store.database import Store
from paddock.store.records import Node, SandboxRow

log = structlog.get_logger(__name__)

LOST_AFTER_S = 86_400.0
"""A node not seen for this long no longer holds up the delete of its sandboxes. If it comes back, it removes their
machines, because their rows say `deleted`."""
_POLL_S = 0.1
_NO_URL_HINT = "(With PADDOCK_INTERNAL_URL set there, others pass requests on to it.)"


class NodeTaken(Unavailable):
    """A server on another machine uses the same home: each would take the other's processes for dead."""

    code = "node_taken"


class Nodes:
    def __init__(
        self, settings: Settings, clock: Clock, store: Store, providers: Mapping[str, Provider], server_id: str
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._providers = providers
        self._server_id = server_id
        self._ids: dict[str, str] = {}
        self._known: dict[str, Node] = {}
        self._shared_at: dict[str, float] = {}
        """When another server was met on a node of this one, last."""
        self.has_peers = False
        """Whether there are other nodes to whose servers requests can be forwarded."""
        self.alone = True
        """Whether no other server used this database at the last heartbeat."""
        self._rest = asyncio.sleep
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    @property
    def ids(self) -> frozenset[str] | None:
        """Nodes whose sandboxes this server acts on. None means all, as with SQLite, which has one server at a time."""
        return None if self._store.sqlite else frozenset(self._ids.values())

    @property
    def providers(self) -> Collection[str]:
        return self._providers.keys()

    async def open(self) -> None:
        home = await asyncio.to_thread(_home_id, self._settings.home / "node")
        for name, provider in self._providers.items():
            shared = await asyncio.to_thread(provider.shared_node)
            self._ids[name] = f"{name}-{shared}" if shared else f"{name}-{home}"
        if not self._store.sqlite:
            await self._refuse_second_machine()
        await self.beat()

    async def beat(self) -> None:
        """Write this server's heartbeat, and read those of the others."""
        now = self._clock.now()
        name = platform.node() or "unknown"
        url = self._settings.node_url or None
        ours = [Node(each, name, url, self._boot_id, self._server_id, now) for each in sorted(self._ids.values())]
        async with self._store.write() as connection:
            await self._meet_others(connection)
            await servers.beat_nodes(connection, ours)
            self._known = {node.node_id: node for node in await servers.all_nodes(connection)}
            others = await servers.others_alive(connection, self._server_id, now, self._settings.server_ttl)
        self.alone = not others
        self.has_peers = not self._store.sqlite and any(map(self._is_peer, self._known.values()))

    async def unshared(self, connection: AsyncConnection) -> frozenset[str]:
        """Those of its nodes of whose sandboxes this server alone keeps the time: no other one was there for as long
        as a server may be silent."""
        await self._meet_others(connection)
        since = self._clock.now() - self._settings.server_ttl
        return frozenset(each for each in self._ids.values() if self._shared_at.get(each, -math.inf) < since)

    async def _meet_others(self, connection: AsyncConnection) -> None:
        """Servers of one node take turns in its row, so each finds the other there at its next heartbeat."""
        now, ttl = self._clock.now(), self._settings.server_ttl
        for node in await servers.all_nodes(connection):
            if not self.is_ours(node.node_id) or node.server_id == self._server_id:
                continue
            if await servers.alive(connection, node.server_id, now, ttl):
                self._shared_at[node.node_id] = now

    def shift(self, seconds: float) -> None:
        """The clock was set by so much."""
        self._shared_at = {node_id: at + seconds for node_id, at in self._shared_at.items()}

    def of(self, provider: str) -> str | None:
        """The node on which this server's sandboxes of this provider live."""
        return self._ids.get(provider)

    def here(self, sandbox: SandboxRow) -> bool:
        """True also for rows without a node, written before nodes were recorded: any server may check those."""
        return self._store.sqlite or sandbox.node_id is None or sandbox.node_id == self._ids.get(sandbox.provider)

    def unplaced(self, sandbox: SandboxRow) -> bool:
        """Whether the row has no node, so that its absence here proves nothing."""
        return sandbox.node_id is None and not self._store.sqlite

    def require(self, sandbox: SandboxRow) -> None:
        if not self.here(sandbox):
            raise self.elsewhere(sandbox)

    def node_of(self, sandbox: SandboxRow) -> Node | None:
        """The sandbox's node as of the last heartbeat; None if unknown."""
        return self._known.get(sandbox.node_id or "")

    def is_ours(self, node_id: str) -> bool:
        return node_id in self._ids.values()

    def peer(self, node_id: str) -> Node | None:
        """Another node whose server is alive and has published its URL."""
        node = self._known.get(node_id)
        return node if node is not None and self._is_peer(node) and self.alive(node) else None

    def _is_peer(self, node: Node) -> bool:
        return node.url is not None and not self.is_ours(node.node_id)

    def alive(self, node: Node | None) -> bool:
        # Heartbeats come every quarter of the TTL, and are read here at the same interval.
        return node is not None and node.seen_at >= self._clock.now() - 1.25 * self._settings.server_ttl

    def reachable(self, sandbox: SandboxRow) -> bool:
        """Whether a server, here or elsewhere, can act on the sandbox now."""
        return self.here(sandbox) or self.alive(self.node_of(sandbox))

    def lost(self, sandbox: SandboxRow) -> bool:
        node = self.node_of(sandbox)
        if node is None or self.here(sandbox):
            return False
        return max(node.seen_at, sandbox.state_changed_at) < self._clock.now() - LOST_AFTER_S

    def elsewhere(self, sandbox: SandboxRow) -> SandboxElsewhere | ProviderUnavailable:
        node = self.node_of(sandbox)
        where = f"machine {node.name!r}" if node else "a machine that is not known here"
        details: dict[str, Any] = {"sandbox_id": sandbox.sandbox_id, "node": sandbox.node_id}
        start = f"Sandbox {sandbox.sandbox_id!r} lives on {where} (node {sandbox.node_id})"
        if node is None or not self.alive(node):
            return ProviderUnavailable(
                f"{start}, where no Paddock server runs now. It is as it was; start the server there.", details=details
            )
        ask = f"Ask the server there: {node.url}." if node.url else f"Ask the server there. {_NO_URL_HINT}"
        return SandboxElsewhere(f"{start}, which this server cannot act on. {ask}", details=details | {"url": node.url})

    def delete_stands(self, sandbox: SandboxRow) -> ProviderUnavailable:
        problem = self.elsewhere(sandbox)
        told = problem.message.partition(" It is as it was")[0]
        return ProviderUnavailable(
            f"{told} Its delete stands: it is carried out when that server is back, and counts as done after a day "
            "without it.",
            details=problem.details,
        )

    async def _refuse_second_machine(self) -> None:
        """Raise NodeTaken if a node whose sandboxes are processes of one machine has servers on two. A heartbeat may
        date from before a reboot: only one that advances proves a living server."""
        bound = {self._ids[name] for name, provider in self._providers.items() if provider.on_this_machine}
        async with self._store.read() as connection:
            found = {node.node_id: node for node in await servers.all_nodes(connection)}
        others = [found[each] for each in bound if each in found and found[each].boot_id != self._boot_id]
        for other in others:
            while self.alive(other):
                await self._rest(_POLL_S)
                async with self._store.read() as connection:
                    latest = {one.node_id: one for one in await servers.all_nodes(connection)}
                now = latest.get(other.node_id, other)
                if (now.server_id, now.boot_id) == (other.server_id, other.boot_id) and now.seen_at > other.seen_at:
                    raise NodeTaken(
                        f"A Paddock server on another machine ({other.name!r}) uses the same PADDOCK_HOME, or a copy "
                        f"of it ({self._settings.home / 'node'} names both). Sandboxes of the local provider are "
                        "processes of one machine: give each machine a PADDOCK_HOME of its own."
                    )
                if now.seen_at < other.seen_at:
                    break


def _home_id(path: Path) -> str:
    """The home's id, created once. A user who copies a home to another machine removes this file there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"node.{secrets.token_hex(4)}")
    if not path.exists():
        temporary.write_text(secrets.token_hex(8) + "\n")
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    if not (name := path.read_text().strip()):
        raise Unavailable(f"{path} is empty: it holds the name of this home. Put back what it held, or remove it.")
    return name
