"""A sync and an async client of one server, each created on first use.

For objects that are called from plain code and from coroutines, such as LangChain tools. An async client's connections
belong to an event loop, so each loop has its own client.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar
from weakref import WeakKeyDictionary

from paddock.client.asynchronous import SandboxClient
from paddock.client.call import Steps, run_steps, run_steps_async
from paddock.client.connection import HttpConnection
from paddock.client.synchronous import SyncSandboxClient

T = TypeVar("T")


class ClientPair:
    """A ``client`` that is passed in is used but not closed."""

    def __init__(
        self,
        client: SandboxClient | SyncSandboxClient | None = None,
        *,
        server_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        found = HttpConnection.find(server_url, api_key, 120.0, 4) if client is None else client._connection
        self._connection = found
        self._lent_async = client if isinstance(client, SandboxClient) else None
        self._lent_sync = client if isinstance(client, SyncSandboxClient) else None
        self._lent_to: asyncio.AbstractEventLoop | None = None
        self._sync: SyncSandboxClient | None = None
        self._per_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, SandboxClient] = WeakKeyDictionary()
        self._making = threading.Lock()

    @property
    def server_url(self) -> str:
        return self._connection.server_url

    def plain(self) -> SyncSandboxClient:
        if self._lent_sync is not None:
            return self._lent_sync
        with self._making:
            if self._sync is None:
                known = self._connection
                self._sync = SyncSandboxClient(
                    known.server_url, api_key=known.api_key, timeout=known.timeout, retries=known.retries
                )
            return self._sync

    def here(self) -> SandboxClient:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._making:
            if self._lent_async is not None and self._lent_to in (None, loop):
                self._lent_to = loop
                return self._lent_async
            client = self._per_loop.get(loop)
            if client is None:
                known = self._connection
                client = self._per_loop[loop] = SandboxClient(
                    known.server_url, api_key=known.api_key, timeout=known.timeout, retries=known.retries
                )
            return client

    def run(self, steps: Steps[T]) -> T:
        return run_steps(self.plain(), steps)

    async def run_async(self, steps: Steps[T]) -> T:
        return await run_steps_async(self.here(), steps)

    def close(self) -> None:
        """Close the sync client. Async clients are closed by ``aclose``, or with their event loops."""
        with self._making:
            closing, self._sync = self._sync, None
        if closing is not None:
            closing.close()

    async def aclose(self) -> None:
        """Close the sync client and the client of the running event loop."""
        with self._making:
            closing = self._per_loop.pop(asyncio.get_running_loop(), None)
        if closing is not None:
            await closing.close()
        self.close()
