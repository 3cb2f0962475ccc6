"""A real Paddock server, and tests that run inside deepagents' environments against it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2b.server import PaddockServer
from tests.support.serving import serving

# They run inside those environments.
collect_ignore = ["suite"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    with serving(tmp_path_factory.mktemp("paddock") / "home") as running:
        yield running
