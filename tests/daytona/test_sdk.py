"""The unmodified Daytona SDK, blocking and asynchronous, against a real server with real sandboxes.

The tests themselves are in ``python/``; each is one here.
"""

from __future__ import annotations

import pytest

from tests.daytona.batches import ASYNC, SECONDS, SYNC, Batch, Outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 900)]

ALL = [(batch, test) for batch in (SYNC, ASYNC) for test in batch.tests()]


@pytest.mark.parametrize(("batch", "test"), ALL, ids=[f"{batch.voice}-{test}" for batch, test in ALL])
def test_sdk(batch: Batch, test: str, outcomes: Outcomes) -> None:
    outcome = outcomes(batch)[test]
    if outcome.outcome == "skipped":
        pytest.skip(outcome.message)
    if outcome.outcome == "failed":
        pytest.fail(outcome.message, pytrace=False)
