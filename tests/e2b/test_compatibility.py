"""The compatibility table says what the tests found, and knows every method that the SDKs have."""

from __future__ import annotations

import pytest

from tests.e2b import compatibility
from tests.e2b.batches import SECONDS, Outcomes, batches
from tests.e2b.compatibility import COLUMNS, Column, Verdict

_LISTED = [
    pytest.param(column, id=column.title, marks=() if column.environment.newest else pytest.mark.exhaustive)
    for column in COLUMNS
]
_IN_FULL = [
    pytest.param(
        column,
        id=column.title,
        marks=() if column.title in ("Python, newest", "JS, newest") else pytest.mark.exhaustive,
    )
    for column in COLUMNS
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 360)]


@pytest.mark.parametrize("column", _LISTED)
def test_every_method_is_in_the_table(column: Column) -> None:
    if column.environment.missing:
        pytest.skip(column.environment.missing)
    text = compatibility.DOCUMENT.read_text()
    for method in column.methods():
        assert f"| `{method.partition('.')[2]}` |" in text, f"python -m tests.e2b.compatibility adds {method}"


@pytest.mark.parametrize("column", _IN_FULL)
def test_every_method_is_called_by_a_test(column: Column, outcomes: Outcomes) -> None:
    if column.environment.missing:
        pytest.skip(column.environment.missing)
    mine = (column.environment, column.voice)
    found = {batch: outcomes(batch) for batch in batches() if (batch.environment, batch.voice) == mine}
    verdicts = compatibility.verdicts(column, found)
    assert not [method for method, verdict in verdicts.items() if verdict is Verdict.UNTESTED]


@pytest.mark.exhaustive
def test_the_table_is_what_these_tests_found(outcomes: Outcomes) -> None:
    if lacking := {batch.environment.missing for batch in batches()} - {None}:
        pytest.skip(", ".join(str(reason) for reason in lacking))
    found = compatibility.collect(outcomes)
    assert not compatibility.failures(found)
    assert compatibility.document(found) == compatibility.DOCUMENT.read_text(), "python -m tests.e2b.compatibility"
