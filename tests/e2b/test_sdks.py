"""The unmodified E2B SDKs and CLI, over plain HTTP, against a real server with real sandboxes.

The tests themselves are in ``python/`` and ``javascript/``; each is one here.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2b import environments
from tests.e2b.batches import SECONDS, Batch, Outcomes, batches

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 360)]


_SAMPLES = (
    Batch(environments.PYTHON_OLDEST, "sync", "test_commands.py"),
    Batch(environments.PYTHON_NEWEST, "async", "test_commands.py"),
)


def _case(batch: Batch, test: str) -> Any:
    """Of the oldest SDK and of the asynchronous voice, one file stands for the others."""
    sample = (batch.environment.newest and batch.voice != "async") or batch in _SAMPLES
    return pytest.param(batch, test, id=f"{batch.name}-{test}", marks=() if sample else pytest.mark.exhaustive)


@pytest.mark.parametrize(("batch", "test"), [_case(batch, test) for batch in batches() for test in batch.tests()])
def test_sdk(batch: Batch, test: str, outcomes: Outcomes) -> None:
    if batch.environment.missing:
        pytest.skip(batch.environment.missing)
    outcome = outcomes(batch)[test]
    if outcome.outcome == "skipped":
        pytest.skip(outcome.message)
    if outcome.outcome == "failed":
        pytest.fail(outcome.message, pytrace=False)
