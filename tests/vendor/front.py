"""A Paddock whose sandboxes are machines at a vendor, asked through its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.api.conftest import speaking_to
from tests.vendor.account import Account, DaytonaAccount


@asynccontextmanager
async def a_front(
    account: Account, home: Path, **settings: Any
) -> AsyncIterator[tuple[ServerContext, httpx.AsyncClient]]:
    """With a client that has an admin's key. What it made and left is deleted at the end."""
    made = Settings(_env_file=None, PADDOCK_HOME=home, **(_vendor_settings(account) | settings))
    await first_key(made)
    app = create_app(made)
    async with app.router.lifespan_context(app), speaking_to(app, made.key_file.read_text().strip()) as client:
        try:
            yield app.state.context, client
        finally:
            for sandbox in (await client.get("/sandboxes")).json()["sandboxes"]:
                await client.delete(f"/sandboxes/{sandbox['sandbox_id']}")


def _vendor_settings(account: Account) -> dict[str, Any]:
    server = account.server
    if isinstance(account, DaytonaAccount):
        return {
            "SANDBOX_PROVIDER": "daytona",
            "DAYTONA_API_KEY": server.key,
            "DAYTONA_API_URL": f"{server.url}/daytona/api",
        }
    return {
        "SANDBOX_PROVIDER": "e2b",
        "E2B_API_KEY": server.key,
        "E2B_API_URL": f"{server.url}/e2b",
        "E2B_SANDBOX_URL": server.url,
    }
