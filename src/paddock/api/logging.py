"""Structured logs: readable on a terminal, JSON otherwise. Configured by the process's entry point, never by an
import."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO, cast
from urllib.parse import unquote, urlsplit

import structlog

from paddock.redaction import LogRedactor
from paddock.settings import Settings

LINES_PER_SECOND = 10


@dataclass(slots=True)
class _Second:
    began: float
    lines: int = 0
    left_out: int = 0


class LineLimit:
    """``tell`` is called at the end of each second in which lines were dropped, with the kind and their number."""

    def __init__(self, tell: Callable[[str, int], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._seconds: dict[str, _Second] = {}

    def admits(self, kind: str) -> bool:
        """``kind``: one of a fixed set, never chosen by a client."""
        now = self._monotonic()
        second = self._seconds.get(kind)
        if second is None or now - second.began >= 1:
            self._end(kind)
            second = self._seconds[kind] = _Second(now)
        second.lines += 1
        if second.lines <= LINES_PER_SECOND:
            return True
        second.left_out += 1
        if second.left_out == 1:
            with suppress(RuntimeError):  # called from a thread without an event loop: reported with the next line
                asyncio.get_running_loop().call_later(1, self._end, kind, second)
        return False

    def _end(self, kind: str, which: _Second | None = None) -> None:
        second = self._seconds.get(kind)
        if second is None or (which is not None and which is not second):
            return
        del self._seconds[kind]
        if second.left_out:
            self._tell(kind, second.left_out)


def configure_logging(settings: Settings) -> None:
    """Write all log records of this process, of Paddock and of libraries, to stderr in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    pretty = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    redactor = LogRedactor(_secrets_of(settings))
    render = _for_people() if pretty else _for_machines()
    ending: list[structlog.typing.Processor] = [structlog.processors.format_exc_info, redactor, render]
    stream = cast(TextIO, _Lossy(sys.stderr))
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("uvicorn.error").addFilter(_WithoutQueries())
    logging.getLogger("uvicorn.error").addFilter(_Limited())
    # RequestMiddleware writes one line per request itself.
    logging.getLogger("uvicorn.access").disabled = True
    for talkative in ("httpx", "httpx2", "alembic"):  # URLs of users' servers may contain secrets
        logging.getLogger(talkative).setLevel(logging.WARNING)
    # Failures of a user's MCP server are reported in its status; this logger would write tracebacks with its URL.
    logging.getLogger("mcp.client").disabled = True


class _Lossy:
    """Standard error, often a file. On a full disk log lines are dropped, so that requests do not fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _WithoutQueries(logging.Filter):
    """Uvicorn logs the URL of every WebSocket, whose query may contain tickets, tokens and commands."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg.partition("?")[0] if isinstance(arg, str) and arg.startswith("/") else arg for arg in record.args
            )
        return True


class _Limited(logging.Filter):
    """Limits uvicorn's lines for malformed requests and opened WebSockets."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit(self._tell)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING or self._limit.admits(str(record.msg))

    def _tell(self, kind: str, left_out: int) -> None:
        structlog.get_logger("paddock.api").info("lines left out", of=kind, count=left_out)


def _secrets_of(settings: Settings) -> list[str]:
    """The secrets in the server's settings."""
    keys = [settings.e2b_api_key.get_secret_value(), settings.daytona_api_key.get_secret_value()]
    password = urlsplit(settings.database_url).password
    return [*keys, *([password, unquote(password)] if password else [])]


def _for_people() -> structlog.typing.Processor:
    # The plain formatter: the pretty one prints local variables, which may contain keys or commands.
    return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def _for_machines() -> structlog.typing.Processor:
    return structlog.processors.JSONRenderer()
