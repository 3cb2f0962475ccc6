"""A server that has the engine's socket and none of its files, as in a container: it finds the far way by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from tests.docker.own_engine import IMAGE, OwnEngine
from tests.e2b.server import PaddockServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    made = OwnEngine(Path(tempfile.mkdtemp(prefix="pde-")))
    try:
        made.start()
        made.make_image()
        yield made
    finally:
        made.end()


def test_auto_goes_far_where_the_engine_does_not_see_the_home(own_engine: OwnEngine, tmp_path: Path) -> None:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare for a directory that the engine does not see")
    home = tmp_path / "home"
    (home / "docker").mkdir(mode=0o700, parents=True)
    server = PaddockServer(
        home,
        within=("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {home}/docker && exec "$@"', "sh"),
        SANDBOX_PROVIDER="docker",
        DOCKER_HOST=f"unix://{own_engine.address.socket}",
        PADDOCK_DOCKER_IMAGES=IMAGE,
        PADDOCK_POOL_SIZE="0",
    )
    server.start()
    try:
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            made = client.create_sandbox("alice").sandbox_id
            client.write_file(made, "/workspace/file", "made")
            assert client.read_file(made, "/workspace/file") == "made"
            layers = {layer.name: layer.detail for layer in client.get_isolation(made).layers}
            assert layers["way to the agent"].startswith("far")
            client.delete_sandbox(made)
        assert own_engine.containers() == []
    finally:
        server.stop()
