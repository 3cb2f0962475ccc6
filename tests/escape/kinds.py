"""The kinds of sandboxes that the escape suite is run on; each skips, with the reason, where there is none here."""

from __future__ import annotations

import os

import pytest

from paddock.doctor import kinds
from paddock.doctor.kinds import SandboxKind
from paddock.settings import Settings
from tests.docker import engine
from tests.local import gvisor

LOCAL, HARDENED, DOCKER, DOCKER_FAR = "local", "hardened", "docker", "docker-far"
EVERY = [LOCAL, *(pytest.param(name, marks=pytest.mark.slow) for name in (HARDENED, DOCKER, DOCKER_FAR))]
"""For ``parametrize``."""


def kind_named(name: str) -> SandboxKind:
    if name == LOCAL:
        return kinds.local()
    if name == HARDENED:
        return kinds.hardened(gvisor.wanted())
    engine.address()
    host = os.environ.get("DOCKER_HOST", "")
    if name == DOCKER:
        return _docker(host, "auto", "")
    return _docker(os.environ.get("PADDOCK_TEST_DOCKER_TCP", host), "far", engine.RUNTIME)


def _docker(host: str, way: str, runtime: str) -> SandboxKind:
    return kinds.docker(
        Settings(
            _env_file=None,
            DOCKER_HOST=host,
            PADDOCK_DOCKER_IMAGES=engine.DEBIAN,
            PADDOCK_DOCKER_WAY=way,
            PADDOCK_DOCKER_RUNTIME=runtime,
        )
    )
