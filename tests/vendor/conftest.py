"""Agents behind a network, and an account at a vendor whose part a second Paddock plays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import build
from tests.vendor.remote_agent import ORDINARY, RemoteAgent, a_remote_agent


@pytest.fixture(params=["normal", pytest.param("sanitized", marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def binary(request: pytest.FixtureRequest) -> Path:
    return build("paddock-agent" if request.param == "normal" else "paddock-agent-sanitized")


@pytest.fixture
def agent(binary: Path) -> Iterator[RemoteAgent]:
    """One that acts for nobody but the one who started it, who may be anybody."""
    with a_remote_agent(binary, "own", os.getuid()) as found:
        yield found


@pytest.fixture
def agent_of_root() -> Iterator[RemoteAgent]:
    if os.getuid() != 0:
        pytest.skip("only root can become every user")
    with a_remote_agent(build("paddock-agent"), "range", 0) as found:
        yield found


@pytest.fixture
def agent_of_a_user() -> Iterator[RemoteAgent]:
    with a_remote_agent(build("paddock-agent"), "own", ORDINARY if os.getuid() == 0 else os.getuid()) as found:
        yield found
