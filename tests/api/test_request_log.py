"""The line that a request leaves in the log: refused ones, which cost their sender nothing, leave few."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import httpx
import structlog
from structlog.testing import capture_logs

from paddock.api.logging import LINES_PER_SECOND, LineLimit, configure_logging
from paddock.settings import Settings
from tests.support.waiting import until

ASKED = 100
LEFT_OUT = "refused requests left out"


def of_requests(logs: Sequence[Any], status: int) -> list[Any]:
    return [line for line in logs if line["event"] == "request" and line["status"] == status]


async def test_refused_requests_leave_few_lines_and_how_many_were_left_out(client: httpx.AsyncClient) -> None:
    """Of each status for itself: one that is refused often hides no other."""
    with capture_logs() as logs:
        for _ in range(ASKED):
            assert (await client.get("/sandboxes", headers={"X-API-Key": "wrong"})).status_code == 401
        assert (await client.get("/nowhere", headers={"X-API-Key": ""})).status_code == 404
        await until(lambda: sum(line["count"] for line in logs if line["event"] == LEFT_OUT) > 0)
        await until(lambda: len(of_requests(logs, 401)) + _left_out(logs) == ASKED)
    assert len(of_requests(logs, 401)) <= ASKED / 2
    assert len(of_requests(logs, 404)) == 1


def _left_out(logs: Sequence[Any]) -> int:
    return sum(line["count"] for line in logs if line["event"] == LEFT_OUT and line["status"] == 401)


async def test_what_users_ask_for_is_logged_however_often(client: httpx.AsyncClient) -> None:
    with capture_logs() as logs:
        await asyncio.gather(*(client.get("/sandboxes/tester_00000000") for _ in range(3 * LINES_PER_SECOND)))
        await asyncio.gather(*(client.get("/sandboxes") for _ in range(3 * LINES_PER_SECOND)))
    assert len(of_requests(logs, 404)) == len(of_requests(logs, 200)) == 3 * LINES_PER_SECOND


def test_each_second_begins_anew_and_each_kind_has_its_own() -> None:
    now, told = 0.0, list[tuple[str, int]]()
    limit = LineLimit(lambda kind, count: told.append((kind, count)), lambda: now)
    assert sum(limit.admits("401") for _ in range(50)) == LINES_PER_SECOND
    assert limit.admits("403")
    assert told == []
    now = 1.0
    assert limit.admits("401")
    assert told == [("401", 50 - LINES_PER_SECOND)]
    assert sum(limit.admits("401") for _ in range(50)) == LINES_PER_SECOND - 1


def test_malformed_requests_which_uvicorn_logs_leave_few_lines_too() -> None:
    logger = logging.getLogger("uvicorn.error")
    before, handlers = logger.filters[:], logging.getLogger().handlers[:]
    configure_logging(Settings(_env_file=None))
    try:
        record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "Invalid HTTP request received.", (), None)
        assert sum(bool(logger.filter(record)) for _ in range(ASKED)) == LINES_PER_SECOND
        failure = logger.makeRecord(logger.name, logging.ERROR, "", 0, "it failed", (), None)
        assert sum(bool(logger.filter(failure)) for _ in range(ASKED)) == ASKED
    finally:
        structlog.reset_defaults()
        logger.filters, logging.getLogger().handlers = before, handlers
