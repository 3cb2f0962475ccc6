"""The table of ``docs/daytona-compatibility.md``: every public method of the SDK, and what became of it in the tests.

``python -m tests.daytona.compatibility`` runs them and writes the table. A method *works* when it was called in a test
that passed and answered there; it is *refused* when such tests only ever saw it raise an error of the SDK; there are
*none there* when it answered so, about things that nobody can make.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from tests.daytona import environments
from tests.daytona.batches import ASYNC, SYNC, Batch, Outcome, run

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "daytona-compatibility.md"
BEGIN, END = "<!-- begin: written by python -m tests.daytona.compatibility -->", "<!-- end -->"
COLUMNS = {"Python": SYNC, "Python async": ASYNC}
_NOBODY_MAKES = ("VolumeService", "SecretService", "WarmPoolService")
_ORDER = (
    "Daytona",
    "Sandbox",
    "Process",
    "PtyHandle",
    "CodeInterpreter",
    "FileSystem",
    "Git",
    "LspServer",
    "SnapshotService",
    "VolumeService",
    "SecretService",
    "WarmPoolService",
    "ComputerUse",
    "Mouse",
    "Keyboard",
    "Screenshot",
    "Display",
    "RecordingService",
    "Accessibility",
)
Found = dict[str, Outcome]


class Verdict(StrEnum):
    WORKS = "works"
    REFUSED = "refused"
    NONE = "none there"
    ABSENT = "–"
    UNTESTED = "not tested"


def methods(batch: Batch) -> set[str]:
    """What the SDK has, read from itself."""
    environments.prepare(batch.environment)
    script = batch.path / "inventory.py"
    done = subprocess.run([batch.environment.python, script], capture_output=True, text=True, timeout=120, check=True)
    known: dict[str, list[str]] = json.loads(done.stdout)[batch.voice]
    return {f"{cls}.{name}" for cls, names in known.items() for name in names}


def verdicts(batch: Batch, found: Found) -> dict[str, Verdict]:
    """One for each method that the SDK has in this voice."""
    passed = [outcome for outcome in found.values() if outcome.outcome == "passed"]
    called = {call.method for outcome in passed for call in outcome.calls}
    answered = {call.method for outcome in passed for call in outcome.calls if call.returned}
    return {method: _verdict(method, called, answered) for method in methods(batch)}


def _verdict(method: str, called: set[str], answered: set[str]) -> Verdict:
    if method in answered:
        return Verdict.NONE if method.partition(".")[0] in _NOBODY_MAKES else Verdict.WORKS
    return Verdict.REFUSED if method in called else Verdict.UNTESTED


def render(found: dict[str, Found]) -> str:
    columns = {title: verdicts(batch, found[title]) for title, batch in COLUMNS.items()}
    known = {method for column in columns.values() for method in column}
    lines = [BEGIN, "", f"`{environments.SDK.packages[0]}`", ""]
    for cls in _ORDER:
        names = sorted(method for method in known if method.partition(".")[0] == cls)
        lines += [f"### {cls}", "", *_table(names, columns), ""]
    return "\n".join([*lines, END])


def document(found: dict[str, Found]) -> str:
    """The whole file with a new table in it."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    return head + render(found) + rest.partition(END)[2]


def _table(names: list[str], columns: dict[str, dict[str, Verdict]]) -> Iterator[str]:
    yield "| | " + " | ".join(columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for name in names:
        cells = (column.get(name, Verdict.ABSENT) for column in columns.values())
        yield f"| `{name.partition('.')[2]}` | " + " | ".join(cells) + " |"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {title: run(batch, Path(folder)) for title, batch in COLUMNS.items()}
    bad = [f"{one.test}: {one.message}" for each in found.values() for one in each.values() if one.outcome != "passed"]
    if bad:
        sys.exit("These do not pass, so there is no new table:\n" + "\n".join(bad))
    DOCUMENT.write_text(document(found))


if __name__ == "__main__":
    main()
