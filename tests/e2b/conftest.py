"""A real Paddock server, and the SDKs that are set against it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2b.batches import Outcomes, run
from tests.e2b.server import hosted

# They run inside the SDKs' own environments.
collect_ignore = ["python", "javascript"]


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with hosted(tmp_path_factory.mktemp("paddock") / "home") as variables:
        yield variables


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, surroundings: dict[str, str]) -> Outcomes:
    """What a batch found; it runs when it is first asked for."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one run share the folder above theirs.
    reports = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "e2b-reports"
    reports.mkdir(exist_ok=True)
    return lambda batch: run(batch, surroundings, reports)
