"""What a server imports before it answers, and apps that are built by their first request."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from starlette.types import Receive, Scope, Send

from paddock.api.on_demand import OnDemandApp

_NOT_AT_THE_START = (
    "alembic",
    "asyncpg",
    "httpcore",
    "mcp",
    "packaging.requirements",
    "paddock.api.compat.daytona.control",
    "paddock.api.compat.daytona.toolbox",
    "paddock.api.compat.e2b.control",
    "paddock.api.compat.e2b.envd",
    "rich.progress",
    "sqlalchemy.dialects.postgresql",
)


def test_a_server_imports_only_what_it_needs_to_answer() -> None:
    script = f"""
import sys
from paddock.api.server import serve
print(*[name for name in {_NOT_AT_THE_START} if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []


class _Builder:
    """Counts what was built, and lets it be built only when it is told to."""

    def __init__(self, *problems: Exception) -> None:
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.built = 0
        self._problems = list(problems)

    def __call__(self) -> _App:
        self.began.set()
        assert self.go_on.wait(30)
        if self._problems:
            raise self._problems.pop(0)
        self.built += 1
        return _App()


class _App:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "answered"})


async def _ask(app: OnDemandApp[_App]) -> str:
    answers: list[str] = []

    async def send(message: object) -> None:
        answers.append(message["type"])  # type: ignore[index]

    await app({"type": "http"}, None, send)  # type: ignore[arg-type]
    return answers[0]


async def test_it_is_built_once_beside_the_event_loop_for_all_who_wait() -> None:
    builder = _Builder()
    app = OnDemandApp(builder)
    assert app.built is None
    first, second = asyncio.create_task(_ask(app)), asyncio.create_task(_ask(app))
    assert await asyncio.to_thread(builder.began.wait, 30)  # the loop runs meanwhile
    first.cancel()
    builder.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == "answered"
    assert await _ask(app) == "answered"
    assert builder.built == 1


async def test_what_could_not_be_built_is_built_by_the_next_request() -> None:
    builder = _Builder(OSError("no file descriptors"))
    builder.go_on.set()
    app = OnDemandApp(builder)
    with pytest.raises(OSError, match="descriptors"):
        await _ask(app)
    assert await _ask(app) == "answered"
