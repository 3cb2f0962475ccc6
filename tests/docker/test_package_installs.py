"""What users type first in a container of an image, `pip install` and its like: really installed, from an index that
only the operator's own certificate authority vouches for (``PADDOCK_EXTRA_CA``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddock.client import SyncSandboxClient
from tests.docker import engine
from tests.e2b.server import PaddockServer
from tests.support.package_index import INSTALLS, PackageIndex
from tests.support.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the image is made once, which takes a minute


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with PackageIndex(tmp_path_factory.mktemp("index")).running() as running:
        yield running


@pytest.fixture(scope="module", params=["near", "far"])
def server(
    request: pytest.FixtureRequest, index: PackageIndex, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PaddockServer]:
    engine.address()
    engine.require(engine.PACKAGES)
    settings = {
        "SANDBOX_PROVIDER": "docker",
        "PADDOCK_DOCKER_IMAGES": engine.PACKAGES,
        "PADDOCK_DOCKER_WAY": request.param,
        "PADDOCK_POOL_SIZE": "1",
        **index.settings,
    }
    with serving(tmp_path_factory.mktemp("packages") / "home", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        yield client


@pytest.fixture
def box(client: SyncSandboxClient, index: PackageIndex) -> Iterator[str]:
    made = client.create_sandbox("newcomer", env=index.variables).sandbox_id
    yield made
    client.delete_sandbox(made)


@pytest.mark.parametrize("name", INSTALLS)
def test_package_managers_install_and_their_programs_are_found(
    client: SyncSandboxClient, box: str, index: PackageIndex, name: str
) -> None:
    if name in ("npm", "npx") and client.run_command(box, "node --version").exit_code != 0:
        pytest.skip("this machine has no Node.js that runs in the image")
    if name == "uvx":
        index.add_uv()
    ran = client.run_command(box, INSTALLS[name])
    assert ran.exit_code == 0 and "ran 4711" in ran.stdout, ran.output
    if name == "pip":
        assert "ran 4711" in client.call_tool(box, "run_command", {"command": "parcel; command -v parcel"}).text


def test_the_authorities_are_read_only_inside_and_have_no_private_key(
    client: SyncSandboxClient, box: str, index: PackageIndex
) -> None:
    refused = client.run_command(box, "echo x >> $SSL_CERT_FILE || rm $SSL_CERT_FILE", user="root")
    assert refused.exit_code != 0, refused.output
    inside = client.run_command(box, "cat $SSL_CERT_FILE").stdout
    own = index.authority.read_text().partition("-----BEGIN PRIVATE")[0].strip()
    assert own in inside and "PRIVATE" not in inside
