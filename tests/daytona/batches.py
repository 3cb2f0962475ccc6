"""Tests that run inside the SDK's own environment, told one by one to the pytest outside.

A batch is one folder of such tests in one voice: the blocking SDK, the asynchronous one, or LangChain's suite. It runs
in one process there, against a server that is started for it, and writes a line of JSON per test: how it ended, and
which methods of the SDK it called. The names are known from the source: every one is a test of its own out here, too.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.daytona import environments
from tests.daytona.environments import Environment, Unavailable, locked
from tests.e2b.server import hosted

HERE = Path(__file__).parent
SECONDS = 900


@dataclass(frozen=True, slots=True)
class Call:
    """A method of the SDK that a test called, as ``Class.method``."""

    method: str
    returned: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    test: str
    outcome: str
    """``passed``, ``failed`` or ``skipped``."""
    message: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    voice: str
    folder: str
    environment: Environment
    file: str = ""
    """This one alone; else all of the folder."""

    @property
    def path(self) -> Path:
        return HERE / self.folder

    @property
    def name(self) -> str:
        return f"{self.voice}-{self.file}" if self.file else self.voice

    def tests(self) -> list[str]:
        """Those that are written down here; LangChain's are its own."""
        found = []
        for path in sorted(self.path.glob(self.file or "test_*.py")):
            tree = ast.parse(path.read_text())
            found += [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"]
        return found


Outcomes = Callable[[Batch], dict[str, Outcome]]

SYNC = Batch("sync", "python", environments.SDK)
ASYNC = Batch("async", "python", environments.SDK)
ASYNC_SAMPLE = Batch("async", "python", environments.SDK, "test_processes.py")
LANGCHAIN = Batch("langchain", "langchain", environments.LANGCHAIN)


def run(batch: Batch, reports: Path) -> dict[str, Outcome]:
    """Its outcomes by name of the test. Whoever comes second reads what the first one found."""
    report = reports / f"{batch.name}.jsonl"
    with locked(reports / f"{batch.name}.lock"):
        if not report.exists():
            _run(batch, report)
    return {outcome.test: outcome for outcome in map(_outcome, report.read_text().splitlines())}


def _run(batch: Batch, report: Path) -> None:
    unfinished = report.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    try:
        environments.prepare(batch.environment)
    except Unavailable as problem:
        lines = [json.dumps({"test": test, "outcome": "skipped", "message": str(problem)}) for test in batch.tests()]
        report.write_text("".join(f"{line}\n" for line in lines))
        return
    with tempfile.TemporaryDirectory() as folder, hosted(Path(folder) / "home") as beside:
        said = _tests(batch, beside, unfinished)
    lines = unfinished.read_text().splitlines() if unfinished.exists() else []
    told = {_outcome(line).test for line in lines}
    for test in batch.tests() or ["the suite"]:
        if test not in told and (batch.tests() or not told):
            lines.append(json.dumps({"test": test, "outcome": "failed", "message": f"never ended:\n{said[-6000:]}"}))
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.replace(report)


def _tests(batch: Batch, beside: dict[str, str], report: Path) -> str:
    command = [
        batch.environment.python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        batch.path / "pytest.ini",
    ]
    command += ["--confcutdir", batch.path, "--rootdir", batch.path, batch.path / batch.file]
    variables = {
        "DAYTONA_API_URL": beside["E2B_API_URL"].removesuffix("/e2b") + "/daytona/api",
        "DAYTONA_API_KEY": beside["E2B_API_KEY"],
        "PADDOCK_TEST_LEVER": beside["PADDOCK_TEST_LEVER"],
        "PADDOCK_TEST_VOICE": batch.voice,
        "PADDOCK_TEST_REPORT": str(report),
    }
    try:
        done = subprocess.run(
            command,
            cwd=batch.path,
            env=_plain() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as expired:
        text = expired.stdout or b""
        return f"took longer than {SECONDS} s\n{text.decode() if isinstance(text, bytes) else text}"
    return done.stdout


def _plain() -> dict[str, str]:
    """Our environment, without what would lead an SDK elsewhere."""
    names = ("DAYTONA_", "PADDOCK_", "PYTEST_", "PYTHON", "LANGCHAIN_", "LANGSMITH_")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def _outcome(line: str) -> Outcome:
    found = json.loads(line)
    calls = tuple(Call(*call) for call in found.get("calls", ()))
    return Outcome(found["test"], found["outcome"], found["message"], calls)
