"""The unmodified E2B SDKs and CLI, over plain HTTP, against a real server with real sandboxes.

The tests themselves are in ``python/`` and ``javascript/``; each is one here.
"""

from __future__ import annotations

import pytest

from tests.e2b.batches import SECONDS, Batch, Outcomes, batches

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 360)]

ALL = [(batch, test) for batch in batches() for test in batch.tests()]


@pytest.mark.parametrize(("batch", "test"), ALL, ids=[f"{batch.name}-{test}" for batch, test in ALL])
def test_sdk(batch: Batch, test: str, outcomes: Outcomes) -> None:
    if batch.environment.missing:
        pytest.skip(batch.environment.missing)
    outcome = outcomes(batch)[test]
    if outcome.outcome == "skipped":
        pytest.skip(outcome.message)
    if outcome.outcome == "failed":
        pytest.fail(outcome.message, pytrace=False)
