"""The table of ``docs/e2b-compatibility.md``: every method of the SDKs, as the tests in this folder found it.

``python -m tests.e2b.compatibility`` runs them all and writes the table. A method *works* when it was called in a test
that passed and answered there; it is *refused* when such tests only ever saw it raise an error of the SDK; there are
*none there* when it answered so, about things that nobody can make.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.e2b import environments, inventory
from tests.e2b.batches import Batch, Outcome, Outcomes, batches, run
from tests.e2b.environments import Environment
from tests.e2b.server import hosted

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "e2b-compatibility.md"
BEGIN, END = "<!-- begin: written by python -m tests.e2b.compatibility -->", "<!-- end -->"
_MAKERS = {
    "Sandbox.list_snapshots": "Sandbox.create_snapshot",
    "Sandbox.delete_snapshot": "Sandbox.create_snapshot",
    "SnapshotPaginator": "Sandbox.create_snapshot",
    "Volume": "Volume.create",
    "Secret": "Secret.create",
    "SecretPaginator": "Secret.create",
}
"""What makes the things that a method, or a whole class, is about."""


class Verdict(StrEnum):
    WORKS = "works"
    REFUSED = "refused"
    NONE = "none there"
    ABSENT = "–"
    UNTESTED = "not tested"


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    voice: str
    environment: Environment

    def methods(self) -> set[str]:
        return inventory.methods(self.environment, self.voice)


COLUMNS = (
    Column("Python, oldest", "sync", environments.PYTHON_OLDEST),
    Column("Python, newest", "sync", environments.PYTHON_NEWEST),
    Column("Python async, oldest", "async", environments.PYTHON_OLDEST),
    Column("Python async, newest", "async", environments.PYTHON_NEWEST),
    Column("JS, oldest", "js", environments.JS_OLDEST),
    Column("JS, newest", "js", environments.JS_NEWEST),
)
Found = dict[Batch, dict[str, Outcome]]


def verdicts(column: Column, found: Found) -> dict[str, Verdict]:
    """One for each method that the SDK of this column has."""
    answered, called = set(), set()
    for batch, outcomes in found.items():
        if (batch.environment, batch.voice) != (column.environment, column.voice):
            continue
        for outcome in outcomes.values():
            if outcome.outcome == "passed":
                called |= {call.method for call in outcome.calls}
                answered |= {call.method for call in outcome.calls if call.returned}
    return {
        method: _verdict(method, method in called, method in answered, called - answered) for method in column.methods()
    }


def _verdict(method: str, called: bool, answered: bool, refused: set[str]) -> Verdict:
    maker = _MAKERS.get(method) or _MAKERS.get(method.partition(".")[0])
    if maker in refused:
        return Verdict.NONE if answered else Verdict.REFUSED
    if answered:
        return Verdict.WORKS
    return Verdict.REFUSED if called else Verdict.UNTESTED


def render(found: Found) -> str:
    columns = {column.title: verdicts(column, found) for column in COLUMNS}
    lines = [BEGIN, "", *_versions(), ""]
    methods = sorted({method for known in columns.values() for method in known}, key=_order)
    for cls in dict.fromkeys(method.partition(".")[0] for method in methods if method not in inventory.INTERPRETER):
        names = [name for name in methods if name.partition(".")[0] == cls and name not in inventory.INTERPRETER]
        lines += [f"### {cls}", "", *_table(names, columns), ""]
    lines += ["### Code interpreter", "", *_table(sorted(inventory.INTERPRETER), columns), ""]
    lines += ["### Command line", "", *_commands(found), "", END]
    return "\n".join(lines)


def document(found: Found) -> str:
    """The whole file with a new table in it."""
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    return head + render(found) + rest.partition(END)[2]


def _versions() -> Iterator[str]:
    yield "| | oldest | newest |"
    yield "|---|---|---|"
    python, js = ("Python", "=="), ("JS", "@")
    for (language, sign), oldest, newest in (
        (python, environments.PYTHON_OLDEST, environments.PYTHON_NEWEST),
        (js, environments.JS_OLDEST, environments.JS_NEWEST),
    ):
        for old, new in zip(oldest.packages[:2], newest.packages[:2], strict=True):
            name, _, version = new.rpartition(sign)
            yield f"| {language} `{name}` | {_version(old)} | {version} |"
    yield f"| `@e2b/cli` | {_version(environments.CLI.packages[0])} | {_version(environments.CLI.packages[0])} |"


def _version(pin: str) -> str:
    return pin.rpartition("@" if "==" not in pin else "=")[2]


def _table(names: Iterable[str], columns: dict[str, dict[str, Verdict]]) -> Iterator[str]:
    yield "| | " + " | ".join(columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for name in names:
        cells = (known.get(name, Verdict.ABSENT) for known in columns.values())
        yield f"| `{name.partition('.')[2]}` | " + " | ".join(cells) + " |"


def _commands(found: Found) -> Iterator[str]:
    yield "| | " + _version(environments.CLI.packages[0]) + " |"
    yield "|---|---|"
    calls = [
        call
        for batch, outcomes in found.items()
        if batch.environment is environments.CLI
        for outcome in outcomes.values()
        if outcome.outcome == "passed"
        for call in outcome.calls
    ]
    for command in sorted({call.method for call in calls}):
        works = any(call.returned for call in calls if call.method == command)
        yield f"| `{command}` | {Verdict.WORKS if works else Verdict.REFUSED} |"


def _order(method: str) -> tuple[int, str]:
    """As a reader meets the classes; those that are refused come last."""
    first = ("Sandbox", "SandboxPaginator", "Commands", "CommandHandle", "CommandInputHandle", "Pty", "Filesystem")
    then = ("WatchHandle", "Git", "SnapshotPaginator", "Template", "Volume", "Secret", "SecretPaginator")
    cls = method.partition(".")[0]
    return (*first, *then).index(cls), method


def failures(found: Found) -> list[str]:
    return [
        f"{batch.name} {outcome.test}: {outcome.message}"
        for batch, outcomes in found.items()
        for outcome in outcomes.values()
        if outcome.outcome == "failed"
    ]


def collect(outcomes: Outcomes) -> Found:
    return {batch: outcomes(batch) for batch in batches() if not batch.environment.missing}


def main() -> None:
    if lacking := {batch.environment.missing for batch in batches()} - {None}:
        sys.exit(f"The table {', '.join(str(reason) for reason in lacking)}.")
    with tempfile.TemporaryDirectory() as folder, hosted(Path(folder) / "home") as surroundings:
        found = collect(lambda batch: run(batch, surroundings, Path(folder)))
    if failed := failures(found):
        sys.exit("These fail, so there is no new table:\n" + "\n".join(failed))
    DOCUMENT.write_text(document(found))


if __name__ == "__main__":
    main()
