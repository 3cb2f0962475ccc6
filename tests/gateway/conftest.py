"""One server for each provider and for all tests; a sandbox with the test's own server in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.bed import Bed, Box, running


@pytest.fixture(scope="session", params=["fake", "local"])
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running(tmp_path_factory.mktemp(request.param), request.param) as bed:
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
