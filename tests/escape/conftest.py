"""Sandboxes with the probe inside, canaries outside: one of each, of one kind at a time, for all tests of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from paddock import errors
from paddock.doctor.kinds import SandboxKind
from paddock.doctor.suite import Suite, TestSandbox, opened, probe_program
from paddock.providers.local.host import local_problems
from tests.escape.kinds import LOCAL, kind_named


@pytest.fixture(scope="session")
def probe() -> None:
    """Skips where it was not built."""
    try:
        probe_program()
    except errors.Unsupported as missing:
        pytest.skip(missing.message)


@pytest.fixture(scope="session")
def possible(probe: None) -> None:
    """Skips where sandboxes of the local provider cannot run, with the reason."""
    if problems := local_problems():
        pytest.skip(" ".join(problems))


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest, probe: None) -> SandboxKind:
    """Of the local provider where a test does not say."""
    name: str = getattr(request, "param", LOCAL)
    if name == LOCAL:
        request.getfixturevalue("possible")
    return kind_named(name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def suite(kind: SandboxKind) -> AsyncIterator[Suite]:
    async with opened(kind) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def box(suite: Suite) -> TestSandbox:
    """One more sandbox, for what is noisy."""
    return await suite.new_box()
