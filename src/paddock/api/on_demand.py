"""Apps that are built when they are first asked for.

E2B's and Daytona's facades are a third of what a server would have to import and compile before it answers, and many
servers never serve either. The first request builds the app in a thread and waits for it; other requests are served
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.garbage_collection import exempt_late_loaded

App = TypeVar("App", bound=ASGIApp)


class OnDemandApp(Generic[App]):
    """``build`` runs in a thread; it imports what it needs itself."""

    def __init__(self, build: Callable[[], App]) -> None:
        self._build = build
        self._building: asyncio.Task[App] | None = None
        self.built: App | None = None
        """None until the first request has come."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.built or await self._first()
        await app(scope, receive, send)

    async def _first(self) -> App:
        """Built once for all who wait; whoever leaves meanwhile takes nothing from the others."""
        if self._building is None or (self._building.done() and self.built is None):
            self._building = asyncio.create_task(asyncio.to_thread(self._build), name="build an app")
        self.built = await asyncio.shield(self._building)
        exempt_late_loaded()
        return self.built
