"""Apps that are built on their first request.

The facades of E2B and Daytona are a third of the imports before the server can answer, and many servers never serve
them. The first request builds the app in a thread; other requests are served meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.garbage_collection import exempt_late_loaded

App = TypeVar("App", bound=ASGIApp)


class OnDemandApp(Generic[App]):
    """``build`` runs in a thread and does its own imports."""

    def __init__(self, build: Callable[[], App]) -> None:
        self._build = build
        self._building: asyncio.Task[App] | None = None
        self.built: App | None = None
        """None before the first request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.built or await self._first()
        await app(scope, receive, send)

    async def _first(self) -> App:
        """Built once for all waiting requests; a cancelled request does not cancel the build."""
        if self._building is None or (self._building.done() and self.built is None):
            self._building = asyncio.create_task(asyncio.to_thread(self._build), name="build an app")
        self.built = await asyncio.shield(self._building)
        exempt_late_loaded()
        return self.built
