"""What tests inside the SDK's environment share: the SDK in the voice that was asked for, and sandboxes.

Only the SDK and pytest are installed here. Each test's outcome and calls go to the pytest outside, a line each.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import daytona
import pytest
from voice import Spoken, Voice

REPORT = Path(os.environ["PADDOCK_TEST_REPORT"])
_voice = Voice(asynchronous=os.environ["PADDOCK_TEST_VOICE"] == "async")


@pytest.fixture(scope="session")
def voice() -> Voice:
    return _voice


@pytest.fixture(scope="session")
def client(voice: Voice) -> Any:
    made = daytona.AsyncDaytona if voice.is_async else daytona.Daytona
    return Spoken(voice, voice.perform(made))


@pytest.fixture(scope="session")
def sandbox(client: Any) -> Iterator[Any]:
    """One for all tests that leave it running, each with its files in a folder of its own."""
    made = client.create(daytona.CreateSandboxFromSnapshotParams(name="shared", auto_stop_interval=0))
    yield made
    made.delete()


@pytest.fixture
def create(client: Any) -> Iterator[Callable[..., Any]]:
    """Makes sandboxes that are gone after the test."""
    made = []

    def make(**fields: Any) -> Any:
        made.append(client.create(daytona.CreateSandboxFromSnapshotParams(**fields)))
        return made[-1]

    yield make
    for each in made:
        try:
            each.delete()
        except daytona.DaytonaNotFoundError:
            continue


@pytest.fixture
def folder(sandbox: Any, request: pytest.FixtureRequest) -> str:
    path = f"/workspace/{request.node.name}"
    sandbox.fs.create_folder(path, "755")
    return path


@pytest.fixture(scope="session")
def restart_server() -> Callable[[], None]:
    """SIGKILL for the server, and a new one on the same port."""

    def restart() -> None:
        lever = urllib.request.Request(os.environ["PADDOCK_TEST_LEVER"], method="POST")
        urllib.request.urlopen(lever, timeout=360).close()

    return restart


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _voice.calls.clear()
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The call decides; a setup or teardown only where it went wrong."""
    if report.when != "call" and report.outcome == "passed":
        return
    message = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else report.longreprtext
    line = {
        "test": report.nodeid.rpartition("::")[2],
        "outcome": report.outcome,
        "message": message,
        "calls": list(_voice.calls),
    }
    with REPORT.open("a") as file:
        file.write(json.dumps(line) + "\n")
