"""The compatibility table says what the tests found, and knows every method that the SDK has."""

from __future__ import annotations

import pytest

from tests.daytona import compatibility, environments
from tests.daytona.batches import SECONDS, Outcomes
from tests.daytona.compatibility import COLUMNS, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 900)]


@pytest.fixture(autouse=True)
def installed() -> None:
    try:
        environments.prepare(environments.SDK)
    except environments.Unavailable as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("title", COLUMNS)
def test_every_method_is_in_the_table(title: str) -> None:
    text = compatibility.DOCUMENT.read_text()
    for method in compatibility.methods(COLUMNS[title]):
        cls, _, name = method.partition(".")
        section = text.partition(f"### {cls}\n")[2].partition("###")[0]
        assert f"| `{name}` |" in section, f"python -m tests.daytona.compatibility adds {method}"


@pytest.mark.parametrize("title", ["Python", pytest.param("Python async", marks=pytest.mark.exhaustive)])
def test_every_method_is_called_by_a_test(title: str, outcomes: Outcomes) -> None:
    found = outcomes(COLUMNS[title])
    verdicts = compatibility.verdicts(COLUMNS[title], found)
    assert not [method for method, verdict in verdicts.items() if verdict is Verdict.UNTESTED]


@pytest.mark.exhaustive
def test_the_table_is_what_these_tests_found(outcomes: Outcomes) -> None:
    found = {title: outcomes(batch) for title, batch in COLUMNS.items()}
    assert not [one.test for each in found.values() for one in each.values() if one.outcome == "failed"]
    assert compatibility.document(found) == compatibility.DOCUMENT.read_text(), "python -m tests.daytona.compatibility"
