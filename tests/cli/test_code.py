"""``paddock run-code`` and ``paddock service`` against a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Paddock


@pytest.fixture
def box(paddock: Paddock) -> Iterator[str]:
    made = paddock("create").stdout.strip()
    yield made
    paddock("kill", made)


def test_code_runs_and_is_remembered(paddock: Paddock, box: str, tmp_path: Path) -> None:
    assert paddock("run-code", box, "x = 20\nprint('defined')").stdout == "defined\n"
    assert paddock("run-code", box, "x + 1").stdout == "21\n"
    assert paddock("run-code", box, input="x + 2").stdout == "22\n"
    (tmp_path / "code.py").write_text("x + 3")
    assert paddock("run-code", box, "--file", str(tmp_path / "code.py")).stdout == "23\n"
    assert paddock("run-code", box, "-l", "bash", "-e", "WHO=me", "echo $WHO; echo oops >&2").stdout == "me\n"


def test_code_that_fails_says_so_by_its_exit_code(paddock: Paddock, box: str) -> None:
    failed = paddock.raw("run-code", box, "1 / 0")
    assert failed.returncode == 1
    assert b"ZeroDivisionError" in failed.stderr
    assert b"\x1b" not in failed.stderr
    document = paddock.json("run-code", box, "print(1)\n1 / 0", check=1)
    assert (document["stdout"], document["error"]["name"]) == ("1\n", "ZeroDivisionError")
    assert "\x1b" not in document["error"]["traceback"]
    assert paddock.json("run-code", box, "[1]")["results"][0]["formats"] == {"json": [1]}
    paddock("run-code", box, "1", "--file", "x", check=2)


def test_services_are_added_listed_and_removed(paddock: Paddock, box: str) -> None:
    said = paddock("service", "add", box, "web", "8000", "python3 -m http.server 8000", "--ready-path", "/").stdout
    assert "port 8000" in said
    assert "http.server" in paddock("service", "list", box).stdout
    [listed] = paddock.json("service", "list", box)["services"]
    assert (listed["name"], listed["ready_path"], listed["running"]) == ("web", "/", False)
    paddock("service", "remove", box, "web")
    assert paddock.json("service", "list", box) == {"services": []}
    paddock("service", "remove", box, "web", check=1)
