"""Tests that run inside an SDK's own environment, told one by one to the pytest outside.

A batch is one file of such tests, in one environment and one voice (the blocking or the asynchronous SDK). It runs in
one process there, which writes a line of JSON per test: how it ended, and which methods of the SDK it called. The names
are known without that environment, from the source, so that every one is a test of its own out here, too.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2b import environments
from tests.e2b.environments import Environment, Language, locked

HERE = Path(__file__).parent
SECONDS = 900
_COMMAND_LINE = "cli.test.mjs"


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
    environment: Environment
    voice: str
    """``sync``, ``async`` or ``js``: a column of the compatibility table."""
    file: str

    @property
    def path(self) -> Path:
        return HERE / self.environment.language / self.file

    @property
    def name(self) -> str:
        return f"{self.environment.name}-{self.voice}-{self.file}"

    def tests(self) -> list[str]:
        if self.environment.language is Language.PYTHON:
            tree = ast.parse(self.path.read_text())
            return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"]
        return re.findall(r"^test\('([^']+)'", self.path.read_text(), re.MULTILINE)


Outcomes = Callable[[Batch], dict[str, Outcome]]


def batches() -> Iterator[Batch]:
    for environment in (environments.PYTHON_NEWEST, environments.PYTHON_OLDEST):
        for voice in ("sync", "async"):
            for path in sorted((HERE / "python").glob("test_*.py")):
                yield Batch(environment, voice, path.name)
    for environment in (environments.JS_NEWEST, environments.JS_OLDEST):
        for path in sorted((HERE / "javascript").glob("*.test.mjs")):
            if path.name != _COMMAND_LINE:
                yield Batch(environment, "js", path.name)
    yield Batch(environments.CLI, "cli", _COMMAND_LINE)


def run(batch: Batch, surroundings: dict[str, str], reports: Path) -> dict[str, Outcome]:
    """Its outcomes by name of the test. Whoever comes second reads what the first one found."""
    report = reports / f"{batch.name}.jsonl"
    with locked(reports / f"{batch.name}.lock"):
        if not report.exists():
            _run(batch, surroundings, report)
    return {outcome.test: outcome for outcome in map(_outcome, report.read_text().splitlines())}


def _run(batch: Batch, surroundings: dict[str, str], report: Path) -> None:
    environments.prepare(batch.environment)
    unfinished = report.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    command, folder = _command(batch)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(batch) | surroundings | {"PADDOCK_TEST_REPORT": str(unfinished)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as expired:
        said = f"took longer than {SECONDS} s\n{_text(expired.stdout)}"
    lines = unfinished.read_text().splitlines() if unfinished.exists() else []
    told = {_outcome(line).test for line in lines}
    for test in batch.tests():
        if test not in told:
            lines.append(json.dumps({"test": test, "outcome": "failed", "message": f"never ended:\n{said[-6000:]}"}))
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.replace(report)


def _command(batch: Batch) -> tuple[list[str | Path], Path]:
    environment = batch.environment
    if environment.language is Language.PYTHON:
        options: list[str | Path] = ["-q", "-p", "no:cacheprovider"]
        options += ["--confcutdir", batch.path.parent, "--rootdir", batch.path.parent]
        ini = batch.path.parent / "pytest.ini"
        return [environment.python, "-m", "pytest", *options, "-c", ini, batch.path], batch.path.parent
    # Node looks for packages beside the file, so the tests are shown there.
    link = environment.folder / "tests"
    if not link.is_symlink():
        link.symlink_to(batch.path.parent)
    return ["node", "--preserve-symlinks", "--preserve-symlinks-main", "tests/run.mjs", batch.file], environment.folder


def _environment(batch: Batch) -> dict[str, str]:
    """Ours, without what would lead an SDK elsewhere."""
    dropped = ("E2B_", "PADDOCK_", "PYTEST_", "COV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PADDOCK_TEST_VOICE": batch.voice,
        "PADDOCK_TEST_NEWEST": "yes" if batch.environment.newest else "",
        "PADDOCK_TEST_ENVIRONMENT": str(batch.environment.folder),
    }


def _outcome(line: str) -> Outcome:
    document = json.loads(line)
    calls = tuple(Call(method, returned) for method, returned in document.get("calls", ()))
    return Outcome(document["test"], document["outcome"], document["message"], calls)


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
