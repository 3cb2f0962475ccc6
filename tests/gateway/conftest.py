"""One server for all tests; a sandbox with the test's own server in it; an attacker's, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.gateway.bed import Bed, Box, running
from tests.gateway.browser import Browser, chromium_browser
from tests.gateway.hostile import Attacker, box_of_attacker
from tests.gateway.old_proxy import OldProxy, old_proxy


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running(tmp_path_factory.mktemp("bed"), "local") as bed:
        yield bed


@pytest.fixture(scope="session")
def box(bed: Bed) -> Box:
    """Private, as every sandbox is unless somebody asks for something else."""
    return bed.create().serve()


@pytest.fixture(scope="session")
def local_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """For what needs real speed, or real sockets."""
    with running(tmp_path_factory.mktemp("alone"), "local") as bed:
        yield bed


@pytest.fixture(scope="session")
def local_box(local_bed: Bed) -> Box:
    return local_bed.create().serve()


@pytest.fixture
def attackers_box(local_bed: Bed) -> Iterator[Box]:
    """Open to everybody, so that no link is in the way of a trick."""
    box = box_of_attacker(local_bed, public_ports=True)
    yield box
    box.delete()


@pytest.fixture
async def proxy(local_bed: Bed) -> AsyncIterator[OldProxy]:
    async with old_proxy(local_bed.port) as proxy:
        yield proxy


@pytest.fixture(params=["refused", "sandboxed"])
def attacker(request: pytest.FixtureRequest, attackers_box: Box, proxy: OldProxy) -> Attacker:
    return Attacker(attackers_box, attackers_box.bed.port if request.param == "refused" else proxy.port)


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with chromium_browser(tmp_path / "profile") as browser:
        yield browser
