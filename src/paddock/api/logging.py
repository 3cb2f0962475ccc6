"""Structured logs: for people on a terminal, JSON otherwise. Set up by whoever runs the process, never by an import."""

from __future__ import annotations

import logging
import sys

import structlog

from paddock.settings import Settings


def configure_logging(settings: Settings) -> None:
    """Everything that is logged in this process, by us or by a library, in one form on stderr."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    pretty = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    ending = _for_people() if pretty else _for_machines()
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.INFO))
    # One line per request is ours to write.
    logging.getLogger("uvicorn.access").disabled = True
    for talkative in ("httpx", "httpx2", "alembic"):  # the addresses of users' servers may hold secrets
        logging.getLogger(talkative).setLevel(logging.WARNING)
    # What goes wrong with a user's MCP server is told in its status; this would write traces, with its address in them.
    logging.getLogger("mcp.client").disabled = True


def _for_people() -> list[structlog.typing.Processor]:
    # The plain form: the pretty one prints local variables, and a key or a command may be among them.
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def _for_machines() -> list[structlog.typing.Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
