"""The servers under test, each in its own process on one core."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import insert

from paddock.accounts.first_key import first_key
from paddock.models import State
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from paddock.store.database import Store
from paddock.store.tables import deadlines, sandboxes

SERVER_CORE, CLIENT_CORE = 0, 1


def pin(core: int) -> None:
    """Run on one core, if there are several: server and client must not share one."""
    if core < (os.cpu_count() or 1):
        os.sched_setaffinity(0, {core})


@contextmanager
def hello() -> Iterator[int]:
    """The baseline: FastAPI that returns one line of JSON, on uvicorn with the same settings."""
    with _server("hello", {}) as port:
        yield port


@contextmanager
def paddock(home: Path) -> Iterator[int]:
    """With the local provider and without a pool: each create builds a whole sandbox."""
    settings = {"PADDOCK_HOME": str(home), "SANDBOX_PROVIDER": "local", "PADDOCK_POOL_SIZE": "0"}
    try:
        with _server("paddock", settings) as port:
            yield port
    finally:
        asyncio.run(_end_all(home))


async def _end_all(home: Path) -> None:
    """Sandboxes outlive their server."""
    provider = LocalProvider(home / "local")
    await provider.start()
    for found in await provider.list():
        await provider.delete(found.sandbox_id)
    await provider.close()


async def prepare(home: Path, rows: int, *, deleted: int = 0) -> str:
    """A database that contains this many sandboxes; returns the key."""
    settings = Settings(PADDOCK_HOME=home, _env_file=None)
    key = (await first_key(settings)).key
    store = Store(settings.database_url)
    await store.open()
    for first in range(0, rows + deleted, 10_000):
        batch = range(first, min(first + 10_000, rows + deleted))
        async with store.write() as connection:
            await connection.execute(insert(sandboxes), [_row(number, number >= rows) for number in batch])
            alive = [number for number in batch if number < rows]
            if alive:
                await connection.execute(insert(deadlines), [_deadline(number) for number in alive])
    await store.close()
    return key


def _row(number: int, deleted: bool) -> dict[str, object]:
    now = time.time() - 1_000_000 + number / 10
    # failed ones, so that the reconciler does not look for their machines
    state = State.DELETED if deleted else State.FAILED
    return {
        "sandbox_id": f"user{number % 100}_{number:08x}",
        "key": f"i{number:020d}",
        "owner_id": "admin",
        "user_id": f"user{number % 100}",
        "provider": "local",
        "reference": None,
        "template_id": "host",
        "state": state,
        "reason": None,
        "version": 1,
        "lease_owner": None,
        "attempts": 0,
        "timeout": 3600,
        "on_timeout": "pause",
        "max_lifetime": None,
        "cpu": 1.0,
        "memory_mb": 512,
        "disk_mb": 1024,
        "pids": 512,
        "env": {},
        "metadata": {"chat": str(number)},
        "git_url": None,
        "created_at": now,
        "started_at": now,
        "running_since": None,
        "last_activity_at": now,
        "state_changed_at": now,
        "deleted_at": time.time() if deleted else None,
        "event_seq": 0,
    }


def _deadline(number: int) -> dict[str, object]:
    due = time.time() + 86_400 + number
    return {
        "sandbox_id": f"user{number % 100}_{number:08x}",
        "kind": "retention",
        "action": "delete",
        "due_at": due,
        "warn_at": None,
        "wake_at": due,
        "generation": 1,
        "claimed_by": None,
        "claimed_until": None,
        "attempts": 0,
    }


@contextmanager
def _server(kind: str, environment: dict[str, str]) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.servers", kind, str(port)],
        env={**os.environ, **environment, "PADDOCK_LOG_LEVEL": "warning", "PORT": str(port)},
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError("the server did not start")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)


def main(kind: str, port: int) -> None:
    pin(SERVER_CORE)
    if kind == "paddock":
        from paddock.api.server import serve

        serve(Settings(_env_file=None))
        return
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/")
    async def say_hello() -> dict[str, str]:
        return {"hello": "world"}

    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, access_log=False, log_level="warning", loop="uvloop", timeout_keep_alive=620
    )
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
