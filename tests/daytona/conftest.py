"""The SDK against a real Paddock server with real sandboxes."""

from __future__ import annotations

import os

import pytest

from tests.daytona.batches import Outcomes, run

# They run inside the SDK's own environment.
collect_ignore = ["python", "langchain"]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What a batch found; it runs when it is first asked for."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one run share the folder above theirs.
    reports = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "daytona-reports"
    reports.mkdir(exist_ok=True)
    return lambda batch: run(batch, reports)
