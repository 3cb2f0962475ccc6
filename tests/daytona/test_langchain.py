"""LangChain's standard tests of sandboxes, by its own package for Daytona, against Paddock."""

from __future__ import annotations

import pytest

from tests.daytona.batches import LANGCHAIN, SECONDS, Outcomes

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 900)]

_ALL_OF_THEM = 86


def test_langchains_standard_suite_passes(outcomes: Outcomes) -> None:
    found = outcomes(LANGCHAIN)
    if not found:
        pytest.skip("langchain-daytona cannot be installed now")
    failed = [f"{outcome.test}: {outcome.message}" for outcome in found.values() if outcome.outcome == "failed"]
    assert not failed, "\n".join(failed)
    assert len([outcome for outcome in found.values() if outcome.outcome == "passed"]) >= _ALL_OF_THEM
