"""The database on a disk that is really full, read-only, or damaged: said by `/health`, and nothing is left behind."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.errors import PaddockError, ProviderUnavailable
from paddock.providers.base import Storage
from paddock.server import context as houses
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.api.conftest import settings_of, speaking_to
from tests.support import local_home
from tests.support.small_disk import SmallDisk, small_disk

CREATE = {"user_id": "alice"}


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(houses, "_HEALTH_INTERVAL_S", 0.0)


@pytest.fixture
def settings(tmp_path: Path, prepared_home: Path) -> Iterator[Settings]:
    """Of a home whose database is not looked at afterwards: it may be damaged."""
    shutil.copytree(prepared_home, tmp_path / "home")
    yield settings_of(tmp_path / "home")
    asyncio.run(local_home.clear(tmp_path / "home"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, 64) as disk:
        yield disk


@pytest.fixture
async def settings_on(disk: SmallDisk, tmp_path: Path, prepared_home: Path) -> AsyncIterator[Settings]:
    """Only the database is on the small disk; machines are elsewhere."""
    shutil.copytree(prepared_home, tmp_path / "home")
    (disk.path / "data").mkdir()
    for file in (tmp_path / "home").glob("paddock.db*"):
        shutil.move(file, disk.path / "data" / file.name)
    yield settings_of(tmp_path / "home", DATABASE_URL=f"sqlite:///{disk.path}/data/paddock.db")
    await local_home.clear(tmp_path / "home")


@pytest.fixture
async def app_on(settings_on: Settings) -> AsyncIterator[FastAPI]:
    app = create_app(settings_on)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def caller(app_on: FastAPI, settings_on: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with speaking_to(app_on, settings_on.key_file.read_text().strip()) as client:
        yield client


async def machines(app: FastAPI) -> set[str]:
    context: ServerContext = app.state.context
    return {found.sandbox_id for found in await context.providers["local"].list()}


async def test_a_full_disk_is_told_and_sandboxes_can_be_ended(
    caller: httpx.AsyncClient, app_on: FastAPI, disk: SmallDisk
) -> None:
    made = [(await caller.post("/sandboxes/create", json=CREATE)).json()["sandbox_id"] for _ in range(3)]
    disk.fill()
    context: ServerContext = app_on.state.context
    await context.disk_monitor.look()
    for number in range(20):  # what little the log still has room for
        if (await caller.get("/health")).status_code == 503:
            break
        disk.fill()
        assert number < 19, "it never was full"
    health = await caller.get("/health")
    assert (health.status_code, health.json()["database"], health.json()["disk"]) == (503, "unavailable", "low")
    refused = await caller.post("/sandboxes/create", json=CREATE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "host_disk_full"), refused.text
    assert await machines(app_on) == set(made)
    assert (await caller.post("/sandboxes/pause", json={"sandbox_id": made[0]})).status_code == 200
    for sandbox_id in made:
        gone = await caller.delete(f"/sandboxes/{sandbox_id}")
        assert gone.status_code == 200, gone.text
    assert await machines(app_on) == set()
    disk.empty()
    await context.disk_monitor.look()
    assert (await caller.get("/health")).status_code == 200
    assert (await caller.get("/ready")).status_code == 200
    again = await caller.post("/sandboxes/create", json=CREATE)
    assert again.status_code == 200, again.text
    assert (disk.path / "data/paddock.db.reserve").exists(), "held back again for the next time"


async def test_a_disk_without_inodes_refuses_creates_until_there_are_some(
    caller: httpx.AsyncClient, app_on: FastAPI, disk: SmallDisk
) -> None:
    context: ServerContext = app_on.state.context
    disk.fill_inodes()
    await context.disk_monitor.look()
    refused = await caller.post("/sandboxes/create", json=CREATE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "host_disk_full"), refused.text
    assert "inodes" in refused.json()["error"]["message"]
    assert (await caller.get("/ready")).status_code == 503
    disk.empty()
    await context.disk_monitor.look()
    assert (await caller.post("/sandboxes/create", json=CREATE)).status_code == 200


async def test_a_disk_that_cannot_be_looked_at_is_taken_for_what_it_was(
    client: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = context.providers["local"]
    seen: list[Storage | PaddockError] = [Storage(1, 50, 0, "Only 1 MB is free.")]

    async def storage() -> Storage:
        if isinstance(seen[-1], PaddockError):
            raise seen[-1]
        return seen[-1]

    async def created() -> int:
        await context.disk_monitor.look()
        ready = (await client.get("/ready")).status_code
        status = (await client.post("/sandboxes/create", json=CREATE)).status_code
        assert (ready == 200) == (status == 200)
        return status

    monkeypatch.setattr(provider, "storage", storage)
    assert await created() == 507
    seen.append(ProviderUnavailable("The disk does not answer."))
    assert await created() == 507, "nobody has seen that there is room again"
    seen.append(Storage(900, 50, 0, None))
    assert await created() == 200
    seen.append(ProviderUnavailable("The disk does not answer."))
    assert await created() == 200


async def test_a_read_only_disk_is_told_and_a_create_leaves_nothing(
    caller: httpx.AsyncClient, app_on: FastAPI, disk: SmallDisk
) -> None:
    disk.fail()
    health = await caller.get("/health")
    assert (health.status_code, health.json()["database"]) == (503, "unavailable")
    assert (await caller.get("/ready")).status_code == 503
    refused = await caller.post("/sandboxes/create", json=CREATE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable"), refused.text
    assert await machines(app_on) == set()


@pytest.mark.parametrize("table", ["sandboxes", "events", "deadlines"])
async def test_a_damaged_database_is_told_and_a_create_leaves_nothing(
    client: httpx.AsyncClient, app: FastAPI, context: ServerContext, table: str
) -> None:
    assert context.store.file is not None
    made = (await client.post("/sandboxes/create", json=CREATE)).json()["sandbox_id"]
    await context.store.close()
    spoil(context.store.file, table)
    await context.store.open()
    refused = await client.post("/sandboxes/create", json=CREATE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable"), refused.text
    assert await machines(app) == {made}, "a create that was refused must leave nothing behind"
    health = await client.get("/health")
    assert (health.status_code, health.json()["database"]) == (503, "unavailable")
    await context.providers["local"].delete(made)


def spoil(database: Path, table: str) -> None:
    """Overwrite the pages of one table and of its indexes."""
    import sqlite3

    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        rows = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = ?", (table,)).fetchall()
    connection.close()
    with database.open("r+b") as file:
        for (page,) in rows:
            file.seek((page - 1) * size)
            file.write(b"\xa5" * size)


@pytest.mark.parametrize("what", ["home", "database", "file"])
def test_a_server_on_a_read_only_disk_says_so_in_one_sentence(
    disk: SmallDisk, prepared_home: Path, tmp_path: Path, what: str
) -> None:
    home = disk.path / "home" if what in ("home", "file") else tmp_path / "home"
    shutil.copytree(prepared_home, home)
    database = home / "paddock.db"
    if what == "database":
        (disk.path / "data").mkdir()
        database = disk.path / "data/paddock.db"
        for file in home.glob("paddock.db*"):
            shutil.move(file, disk.path / "data" / file.name)
    if what == "file":
        subprocess.run(["chattr", "+i", str(database)], check=True)
    else:
        disk.remount("ro")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", "from paddock.cli.app import main; main()", "up", "--port", "0"],
            env={
                "PATH": "/usr/bin:/bin",
                "PADDOCK_HOME": str(home),
                "DATABASE_URL": f"sqlite:///{database}",
                "SANDBOX_PROVIDER": "local",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        disk.remount("rw")
        subprocess.run(["chattr", "-i", str(database)], check=True)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout, ended.stderr
    said = " ".join((ended.stderr + ended.stdout).split())
    assert "read-only" in said.lower(), said
    assert "PADDOCK_HOME" in said, said
