"""Accounts without a running server: the first admin key, and keys created with direct access to the database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.accounts.accounts import Accounts, Principal
from paddock.accounts.quotas import Quota
from paddock.clock import SystemClock
from paddock.errors import Unauthorized
from paddock.models import CreateKey, Role
from paddock.settings import Settings
from paddock.store.database import Store

FIRST_USER = "admin"


@dataclass(frozen=True, slots=True)
class FirstKey:
    key: str
    new: bool


async def first_key(settings: Settings) -> FirstKey:
    """The admin key in the key file. Creates a key, its user and the database if there is no key that works."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with local_accounts(settings) as (accounts, owner):
        await accounts.check_writable()
        if settings.key_file.exists():
            key = settings.key_file.read_text().strip()
            try:
                await accounts.authenticate(key)
                return FirstKey(key, new=False)
            except Unauthorized:
                pass  # the key belongs to another database
        _, key = await accounts.create_key(owner, CreateKey(name="first-key", user_id=FIRST_USER, role=Role.ADMIN))
    _write_private(settings.key_file, key + "\n")
    return FirstKey(key, new=True)


@asynccontextmanager
async def local_accounts(settings: Settings) -> AsyncIterator[tuple[Accounts, Principal]]:
    """Accounts opened directly on the database, with admin rights: a caller who can write the database may do
    anything."""
    store = Store(settings.database_url)
    await store.open()
    try:
        owner = Principal(FIRST_USER, Role.ADMIN, key_id=0, quota=Quota())
        accounts = Accounts(settings, SystemClock(), store)
        yield accounts, owner
        await accounts.close()
    finally:
        await store.close()


def _write_private(path: Path, text: str) -> None:
    """Write a file that is never readable by other users: created with mode 0600, then renamed into place."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
