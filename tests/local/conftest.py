"""One installation of the local provider on this machine, as root or as an ordinary user: whoever runs the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.local import traces
from tests.local.outside import REACHABLE, Outside
from tests.local.place import Inside, Place


@pytest.fixture
async def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    made = Place(tmp_path, tmp_path_factory.getbasetemp() / "made")
    await made.provider.start()
    yield made
    await made.clear()
    assert traces.group_parents(made.root) == [], "an installation without sandboxes keeps no control groups"


@pytest.fixture
async def inside(place: Place) -> Inside:
    """A fresh sandbox of template ``host``."""
    return await place.create()


@pytest.fixture
async def outside(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outside]:
    made = Outside()
    made.install(monkeypatch)
    server = await made.listen()
    yield made
    server.close()


@pytest.fixture
async def connected(outside: Outside, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A place whose operator lets sandboxes reach that internet."""
    made = Place(tmp_path, tmp_path_factory.getbasetemp() / "made", reachable=REACHABLE)
    await made.provider.start()
    yield made
    await made.clear()
    assert traces.group_parents(made.root) == [], "an installation without sandboxes keeps no control groups"
