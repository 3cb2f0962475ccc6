"""Sandboxes of the local provider with the probe inside, canaries outside: one of each for all tests of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from paddock import errors
from paddock.doctor.suite import Box, Suite, opened, probe_program
from paddock.providers.local.probe import check


@pytest.fixture(scope="session")
def possible() -> None:
    """Skips where sandboxes cannot run, with the reason."""
    if problems := check():
        pytest.skip(" ".join(problems))
    try:
        probe_program()
    except errors.Unsupported as missing:
        pytest.skip(missing.message)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def suite(possible: None) -> AsyncIterator[Suite]:
    async with opened() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def box(suite: Suite) -> Box:
    """One more sandbox, for what is noisy."""
    return await suite.new_box()
