"""The catalogue, the probe and the documentation name the same attempts."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from paddock.doctor.attempts import cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import FILE_ATTACKS, file_cases
from paddock.doctor.kinds import OF_A_CONTAINER, OF_A_GUEST, local
from paddock.doctor.plan import length
from paddock.doctor.server.attacks import SERVER_ATTACKS
from paddock.doctor.suite import probe_program

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "security.md"
ATTEMPTS = [attempt for group in GROUPS for attempt in group.attempts]


def every_attempt() -> Iterator[tuple[str, str]]:
    """Its name, and what would have happened."""
    yield from ((attempt.name, attempt.danger) for attempt in ATTEMPTS)
    yield from ((name, danger) for name, (danger, _) in FILE_ATTACKS.items())
    yield from ((bomb.name, bomb.danger) for bomb in BOMBS)
    yield from ((f"allowance-{bomb.name}", bomb.danger) for bomb in ALLOWANCES)
    yield from ((name, danger) for name, (danger, _) in SERVER_ATTACKS.items())


def every_name() -> list[str]:
    return [name for name, _ in every_attempt()]


def test_no_name_twice_and_as_many_as_is_said_everywhere() -> None:
    assert [name for name, count in Counter(every_name()).items() if count > 1] == []
    for place in ("README.md", "docs/cli.md", "src/paddock/cli/doctor.py"):
        [said] = re.findall(r"more than (\d+) ways", (ROOT / place).read_text(encoding="utf-8"))
        assert len(every_name()) - 50 < int(said) < len(every_name()), place


def test_the_probe_knows_exactly_these(possible: None) -> None:
    listed = subprocess.run((probe_program(), "list"), capture_output=True, text=True, check=True).stdout.split()
    of_the_probe = [bomb.name for bomb in BOMBS if bomb.script is None]
    assert sorted(listed) == sorted([attempt.name for attempt in ATTEMPTS] + of_the_probe)


def test_every_attempt_says_what_would_have_happened() -> None:
    assert all(attempt.danger and attempt.users and attempt.modes for attempt in ATTEMPTS)


def test_every_attempt_is_documented_in_the_catalogues_words() -> None:
    document = DOCUMENT.read_text(encoding="utf-8").partition("## The attempts")[2]
    assert dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", document, re.MULTILINE)) == dict(every_attempt())


def test_the_progress_bar_ends_where_the_examination_does() -> None:
    of_sandboxes = len(list(cases(GROUPS))) + len(file_cases()) + len(BOMBS) + len(ALLOWANCES)
    assert length([local(), local()]) == 2 * (of_sandboxes + len(SERVER_ATTACKS))


def test_every_exemption_is_of_an_attempt_and_is_documented() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for title, exempt in (("In a guest of gVisor", OF_A_GUEST), ("On Docker", OF_A_CONTAINER)):
        assert exempt.keys() <= set(every_name())
        section = document.partition(f"### {title}")[2].partition("\n#")[0]
        assert [name for name in exempt if f"`{name}`" not in section] == []
