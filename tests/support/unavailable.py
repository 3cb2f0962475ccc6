"""Kinds of sandboxes that this machine cannot run: their tests are left out, and the summary says which and why.

A skipped test is one of this run whose condition is not met. Hundreds of tests are repeated on each kind of sandbox;
as skipped ones they would hide the others.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import pytest

_REASONS = "PADDOCK_TEST_UNAVAILABLE"
"""Found once, by the process that starts the workers: they must all collect the same tests."""
_LEFT_OUT = pytest.StashKey[Counter[str]]()
_FIXTURES = ("installation", "kind", "chaos")
"""Those whose parameter is a kind of sandbox."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = Counter()
    if _REASONS not in os.environ:
        os.environ[_REASONS] = json.dumps(_find())


def _find() -> dict[str, str]:
    """By the name of the kind, why there is none."""
    from tests.docker import engine
    from tests.local import gvisor
    from tests.support import postgres

    engine_missing, gvisor_missing, postgres_missing = engine.silent(), gvisor.missing(), postgres.missing()
    kinds = {
        "docker": engine_missing,
        "docker-far": engine_missing,
        "hardened": gvisor_missing,
        "local-gvisor": gvisor_missing,
        "postgres-two-servers": postgres_missing,
        "postgres-two-nodes": postgres_missing,
    }
    return {kind: reason for kind, reason in kinds.items() if reason is not None}


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Those that cannot run here. They are counted."""
    reasons = json.loads(os.environ[_REASONS])
    found = [(item, reasons[kind]) for item in items if (kind := _kind(item)) in reasons]
    config.stash[_LEFT_OUT].update(reason for _, reason in found)
    return [item for item, _ in found]


def _kind(item: pytest.Item) -> str | None:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return next((params[name] for name in _FIXTURES if isinstance(params.get(name), str)), None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker collects all tests, and leaves out the same."""
    node.config.stash[_LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for reason, count in config.stash[_LEFT_OUT].items():
        terminalreporter.write_line(f"NOT RUN HERE [{count}] {reason}")
