"""Translates driver errors for an unusable database into Paddock's errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import structlog
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from paddock.errors import StoreFull, StoreUnavailable

log = structlog.get_logger(__name__)

_POSTGRES_DISK_FULL = "53100"


class StoreDamaged(StoreUnavailable):
    """SQLite reports that the file is damaged."""


@contextlib.contextmanager
def translate_driver_errors() -> Iterator[None]:
    """Translate driver errors, except those that callers handle, such as IntegrityError."""
    try:
        yield
    except (IntegrityError, StoreUnavailable):
        raise
    except (DBAPIError, PoolTimeout, DisconnectionError) as error:
        cause = getattr(error, "orig", None) or error
        log.warning("database unavailable", problem=str(cause)[:300])
        raise _kind(cause)(
            f"The database cannot be used right now ({str(cause)[:200]}). Nothing was changed; try again.",
            retry_after=1,
        ) from error
    except (OSError, TimeoutError) as error:
        # asyncpg passes on socket errors when it cannot connect.
        if not _from_driver(error):
            raise
        log.warning("database unreachable", problem=str(error)[:300])
        raise StoreUnavailable(
            "The database cannot be reached right now. Nothing was changed; try again.", retry_after=1
        ) from error


def _kind(cause: BaseException) -> type[StoreUnavailable]:
    code = getattr(cause, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == _POSTGRES_DISK_FULL:
        return StoreFull
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged
    return StoreUnavailable


def _from_driver(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(("asyncpg", "sqlalchemy")):
            return True
        trace = trace.tb_next
    return False
