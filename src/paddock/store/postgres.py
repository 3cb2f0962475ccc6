"""PostgreSQL: its engine, and the lock that keeps this process's writers apart where one has to be alone."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from paddock.store.invalid_rows import loads

_TLS_PARAMETERS = ["sslmode", "sslrootcert", "channel_binding", "ssl"]


def engine(url: URL, pool_timeout: float) -> AsyncEngine:
    return create_async_engine(
        url.difference_update_query(_TLS_PARAMETERS),
        connect_args={"timeout": 10, "command_timeout": 30, **tls(url)},
        pool_size=8,
        max_overflow=16,
        pool_timeout=pool_timeout,
        pool_pre_ping=True,
        json_deserializer=loads,
    )


def tls(url: URL) -> dict[str, Any]:
    """libpq's ``sslmode``, except that the certificate is verified whenever TLS is required."""
    mode = url.query.get("sslmode") or url.query.get("ssl")
    if mode in {None, "disable", "allow", "prefer"}:
        return {"ssl": mode} if mode else {}
    root = url.query.get("sslrootcert")
    context = ssl.create_default_context(cafile=str(root) if root else None)
    context.check_hostname = mode != "verify-ca"
    return {"ssl": context}


@dataclass(frozen=True, slots=True)
class LockSide:
    acquire: Callable[[], Awaitable[object]]
    release: Callable[[], None]


class SharedLock:
    """Whoever wants it alone is next: later ones wait until that is over. Sharing it alone never waits."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self.shared = LockSide(self._enter, self._leave)
        self.alone = LockSide(self._enter_alone, self._gate.release)

    async def _enter(self) -> None:
        if self._gate.locked():
            async with self._gate:
                pass
        self._inside += 1
        self._empty.clear()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    async def _enter_alone(self) -> None:
        await self._gate.acquire()
        try:
            await self._empty.wait()
        except BaseException:
            self._gate.release()
            raise
