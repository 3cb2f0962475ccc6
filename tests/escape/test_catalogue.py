"""The catalogue, the probe and the documentation name the same attempts."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from paddock.doctor.attempts import cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.examination import length
from paddock.doctor.file_api import FILE_ATTACKS, file_cases
from paddock.doctor.server import SERVER_ATTACKS
from paddock.doctor.suite import probe_program

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
ATTEMPTS = [attempt for group in GROUPS for attempt in group.attempts]


def every_name() -> list[str]:
    names = [attempt.name for attempt in ATTEMPTS] + list(FILE_ATTACKS) + [bomb.name for bomb in BOMBS]
    return names + [f"allowance-{bomb.name}" for bomb in ALLOWANCES] + list(SERVER_ATTACKS)


def test_no_name_twice_and_far_more_than_sixty() -> None:
    assert [name for name, count in Counter(every_name()).items() if count > 1] == []
    assert len(every_name()) > 200


def test_the_probe_knows_exactly_these(possible: None) -> None:
    listed = subprocess.run((probe_program(), "list"), capture_output=True, text=True, check=True).stdout.split()
    of_the_probe = [bomb.name for bomb in BOMBS if bomb.script is None]
    assert sorted(listed) == sorted([attempt.name for attempt in ATTEMPTS] + of_the_probe)


def test_every_attempt_says_what_would_have_happened() -> None:
    assert all(attempt.danger and attempt.users and attempt.modes for attempt in ATTEMPTS)


def test_every_attempt_is_documented() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in every_name() if f"`{name}`" not in document] == []


def test_the_progress_bar_ends_where_the_examination_does() -> None:
    of_sandboxes = len(list(cases(GROUPS))) + len(file_cases()) + len(BOMBS) + len(ALLOWANCES)
    assert length() == of_sandboxes + len(SERVER_ATTACKS)
