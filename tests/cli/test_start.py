"""How soon the program answers: what it must not import on the way, because a person waits for it at every start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Paddock

pytestmark = pytest.mark.slow

SERVER = {
    *("alembic", "fastapi", "pydantic_settings", "sqlalchemy", "starlette", "structlog", "uvicorn"),
    *("paddock.accounts", "paddock.api", "paddock.egress", "paddock.gateway", "paddock.interpreter"),
    *("paddock.lifecycle", "paddock.machine", "paddock.providers", "paddock.runtime", "paddock.server"),
    *("paddock.settings", "paddock.store", "paddock.tools", "paddock.workers"),
}
"""No command that only asks a server needs any of it."""
NOT_FOR_LIST = SERVER | {"asyncio", "h2", "httpx._main", "paddock.mcp", "rich", "websockets"}
NOT_FOR_HELP = NOT_FOR_LIST | {"httpcore", "httpx", "paddock.client", "paddock.models"}

_MAIN = """
import atexit, pathlib, sys
told = pathlib.Path(sys.argv.pop())
atexit.register(lambda: told.write_text(" ".join(sys.modules)))
from paddock.cli.app import main
main()
"""


def imported(paddock: Paddock, tmp_path: Path, *words: str) -> set[str]:
    """The modules that are there when the command has ended."""
    told = tmp_path / "modules"
    done = subprocess.run(
        (sys.executable, "-c", _MAIN, *words, str(told)),
        env=paddock.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(told.read_text().split())


def test_help_waits_for_nothing(tmp_path: Path) -> None:
    loaded = imported(Paddock(tmp_path), tmp_path, "--help")
    assert "paddock.cli.up" in loaded, "whose first line is shown"
    assert loaded & (NOT_FOR_HELP | {"pydantic"}) == set()


@pytest.mark.parametrize("words", [("list", "-h"), ("service", "-h")], ids=" ".join)
def test_help_of_one_command_imports_no_other(words: tuple[str, ...], tmp_path: Path) -> None:
    """Typer reads options with Pydantic, even those that were not given."""
    loaded = imported(Paddock(tmp_path), tmp_path, *words)
    assert loaded & (NOT_FOR_HELP | {"paddock.cli.up", "paddock.cli.exec", "paddock.cli.copy"}) == set()


def test_list_waits_for_the_client_alone(paddock: Paddock, tmp_path: Path) -> None:
    loaded = imported(paddock, tmp_path, "list")
    assert "httpx" in loaded
    assert loaded & NOT_FOR_LIST == set()


@pytest.mark.parametrize(
    "words",
    [
        ("status", "BOX"),
        ("inspect", "BOX"),
        ("events", "BOX"),
        ("egress", "BOX"),
        ("exec", "BOX", "--", "true"),
        ("logs", "BOX"),
        ("url", "BOX", "80"),
        ("cp", "pyproject.toml", "BOX:/workspace/"),
        ("service", "list", "BOX"),
        ("mcp", "list", "BOX"),
        ("tool", "list", "BOX"),
        ("keys", "list"),
        ("users", "list"),
        ("template", "list"),
        ("addon", "list"),
        ("usage",),
        ("health",),
    ],
    ids=" ".join,
)
def test_commands_that_ask_a_server_import_none(
    words: tuple[str, ...], paddock: Paddock, box: str, tmp_path: Path
) -> None:
    loaded = imported(paddock, tmp_path, *(word.replace("BOX", box) for word in words))
    assert loaded & SERVER == set()
