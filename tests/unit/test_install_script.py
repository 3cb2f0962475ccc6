"""``make run`` says how far it has come, and in one sentence that there is no network."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "install.py"
_INSTALLED = (
    "fastapi",
    "httpx",
    "pydantic",
    "rich",
    "sqlalchemy",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
    "uvloop",
)


def _run(tmp_path: Path, *names: str) -> subprocess.CompletedProcess[str]:
    lock = tmp_path / "lock"
    lock.write_text("".join(f"{name} \\\n    --hash=sha256:{'0' * 64}\n" for name in names))
    return subprocess.run(
        (sys.executable, SCRIPT, lock, tmp_path / "log"),
        capture_output=True,
        text=True,
        env=os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:1/simple"},
        timeout=60,
    )


def test_progress_is_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    done = _run(
        tmp_path, *(f"{name}=={version(name)}" for name in _INSTALLED), "colorama==1.0 ; sys_platform == 'win32'"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines() == ["paddock:   10 of 10: uvloop"]


def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    done = _run(tmp_path, "there-is-no-such-package==1.0")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "Is this machine on the network?" in line and str(tmp_path / "log") in line
    assert "there-is-no-such-package" in (tmp_path / "log").read_text()
