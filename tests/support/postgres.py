"""A real PostgreSQL for the tests: found on this machine, started in a folder of its own, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import asyncpg


class NoPostgres(RuntimeError):
    pass


@dataclass(frozen=True)
class Postgres:
    port: int
    user: str
    _numbers: Iterator[int]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{database}"

    async def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return self.url(name)


def find_binaries() -> Path:
    """The newest server that is installed; Debian keeps it off the PATH."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    if found := shutil.which("pg_ctl"):
        candidates.insert(0, Path(found).resolve().parent)
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    raise NoPostgres("These tests need a PostgreSQL server. Debian or Ubuntu: apt-get install postgresql")


def missing() -> str | None:
    """Why there is none."""
    try:
        find_binaries()
    except NoPostgres as reason:
        return str(reason)
    return None


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    binaries = find_binaries()
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="paddock-pg-"))
    log = folder / "log"
    data = folder / "data"
    try:
        if user is not None:
            shutil.chown(folder, user)
        _run(user, binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8")
        port = _free_port()
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} "
            "-c fsync=off -c max_connections=200 -c shared_buffers=64MB"
        )
        _run(user, binaries / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "-t", "60", "start")
        try:
            yield Postgres(port, "tester", count(1))
        finally:
            _run(user, binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NoPostgres("Running as root without a `postgres` or `nobody` user to start PostgreSQL as.")


def _run(user: str | None, *command: str | Path) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, user=user, extra_groups=[] if user else None, capture_output=True, text=True, cwd="/", check=False
    )
    if done.returncode != 0:
        raise NoPostgres(f"{words[0]} failed: {done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
