"""Each test's outcome goes to the pytest outside, a line each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

REPORT = Path(os.environ["PADDOCK_TEST_REPORT"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
    message = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else report.longreprtext
    with REPORT.open("a") as file:
        file.write(
            json.dumps({"test": report.nodeid.rpartition("::")[2], "outcome": outcome, "message": message}) + "\n"
        )
