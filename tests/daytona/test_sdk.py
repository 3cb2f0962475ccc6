"""The unmodified Daytona SDK, blocking and asynchronous, against a real server with real sandboxes.

The tests themselves are in ``python/``; each is one here.
"""

from __future__ import annotations

import pytest

from tests.daytona.batches import ASYNC, ASYNC_SAMPLE, SECONDS, SYNC, Batch, Outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 900)]

CASES = [
    pytest.param(batch, test, id=f"{batch.name}-{test}", marks=pytest.mark.exhaustive if batch is ASYNC else ())
    for batch in (SYNC, ASYNC_SAMPLE, ASYNC)
    for test in batch.tests()
]


@pytest.mark.parametrize(("batch", "test"), CASES)
def test_sdk(batch: Batch, test: str, outcomes: Outcomes) -> None:
    outcome = outcomes(batch)[test]
    if outcome.outcome == "skipped":
        pytest.skip(outcome.message)
    if outcome.outcome == "failed":
        pytest.fail(outcome.message, pytrace=False)
