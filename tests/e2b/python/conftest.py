"""What tests inside an SDK's environment share: the SDK in the voice that was asked for, and sandboxes.

Only the SDK and pytest are installed here. Each test's outcome and calls go to the pytest outside, a line each.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import e2b
import pytest
from voice import Voice

VOICE = os.environ["PADDOCK_TEST_VOICE"]
REPORT = Path(os.environ["PADDOCK_TEST_REPORT"])
_voice = Voice(asynchronous=VOICE == "async", newest=bool(os.environ["PADDOCK_TEST_NEWEST"]))


class Sdk:
    """A package's names, whichever voice they are for."""

    voice = VOICE
    is_async = VOICE == "async"
    newest = bool(os.environ["PADDOCK_TEST_NEWEST"])

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        asked = f"Async{name}" if self.is_async and hasattr(self._package, f"Async{name}") else name
        if not hasattr(self._package, asked):
            raise _voice.missing(asked)
        found = getattr(self._package, asked)
        return _voice.speak(found) if name in ("Sandbox", "Volume", "Secret", "Template") else found

    def error(self, *names: str) -> type[Exception]:
        """The first of these that this version has: newer ones are narrower."""
        return next(getattr(self._package, name) for name in names if hasattr(self._package, name))


@pytest.fixture(scope="session")
def sdk() -> Sdk:
    return Sdk(e2b)


@pytest.fixture(scope="session")
def interpreter() -> Sdk:
    return Sdk(import_module("e2b_code_interpreter"))


@pytest.fixture(scope="module")
def sandbox(sdk: Sdk) -> Iterator[Any]:
    """One for all tests of a file: they leave it running, and their files in folders of their own."""
    made = sdk.Sandbox.create(timeout=600, metadata={"of": "a whole file"})
    yield made
    made.kill()


@pytest.fixture
def create(sdk: Sdk) -> Iterator[Callable[..., Any]]:
    """Makes sandboxes that are gone after the test."""
    made = []

    def make(*args: Any, **kwargs: Any) -> Any:
        made.append(sdk.Sandbox.create(*args, **({"timeout": 120} | kwargs)))
        return made[-1]

    yield make
    for each in made:
        sdk.Sandbox.kill(each.sandbox_id)


@pytest.fixture
def folder(sandbox: Any, request: pytest.FixtureRequest) -> str:
    """A folder of this test's own in the shared sandbox."""
    path = f"/home/user/{request.node.name}"
    sandbox.files.make_dir(path)
    return path


@pytest.fixture
def stream(sdk: Sdk) -> Callable[[Any, int, list[str]], None]:
    """The blocking SDK takes the parts at once, the other one gives a handle to send them by."""

    def send(module: Any, pid: int, parts: list[str]) -> None:
        if not sdk.is_async:
            module.stream_input(pid, parts)
            return
        handle = module.stream_input(pid)
        for part in parts:
            handle.send(part)
        handle.close()

    return send


@pytest.fixture(scope="module")
def restart_server() -> Callable[[], None]:
    """SIGKILL for the server, and a new one on the same port."""

    def restart() -> None:
        lever = urllib.request.Request(os.environ["PADDOCK_TEST_LEVER"], method="POST")
        urllib.request.urlopen(lever, timeout=60).close()

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
