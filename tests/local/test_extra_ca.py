"""A certificate authority of the operator's own, ``PADDOCK_EXTRA_CA``: known to the programs in every sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer
from tests.support.debian_template import put_debian_into
from tests.support.package_index import INSTALLS, PackageIndex
from tests.support.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the template debian is made once, which takes minutes

_ASKS = {
    "curl": "curl -sS {url}/repo.git/HEAD",
    "git": "git ls-remote {url}/repo.git refs/heads/main",
    "python3": "python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}/repo.git/HEAD\").read().decode())'",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with PackageIndex(tmp_path_factory.mktemp("index")).running() as running:
        yield running


@pytest.fixture(scope="module")
def server(index: PackageIndex, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    with serving(tmp_path_factory.mktemp("trusting") / "home", **index.settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        yield client


@pytest.fixture(params=["host", "debian"])
def box(
    request: pytest.FixtureRequest, server: PaddockServer, client: SyncSandboxClient, index: PackageIndex
) -> Iterator[str]:
    if request.param == "debian" and not (server.home / "templates" / "debian").exists():
        put_debian_into(server.home)
    made = client.create_sandbox("newcomer", request.param, env=index.variables).sandbox_id
    yield made
    client.delete_sandbox(made)


def _says(client: SyncSandboxClient, box: str, command: str) -> str:
    ran = client.run_command(box, command)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _require(client: SyncSandboxClient, box: str, program: str) -> None:
    if client.run_command(box, f"command -v {program}").exit_code != 0:
        pytest.skip(f"the template has no {program}")


@pytest.mark.parametrize("name", INSTALLS)
def test_package_managers_install_from_an_index_that_only_the_authority_vouches_for(
    client: SyncSandboxClient, box: str, index: PackageIndex, name: str
) -> None:
    _require(client, box, {"uvx": "pip"}.get(name, name.split()[-1]))
    if name == "uvx":
        index.add_uv()
    assert "ran 4711" in _says(client, box, INSTALLS[name])


@pytest.mark.parametrize("program", _ASKS)
def test_programs_trust_it_as_user_and_with_sudo(
    client: SyncSandboxClient, box: str, index: PackageIndex, program: str
) -> None:
    _require(client, box, program)
    command = _ASKS[program].format(url=index.url)
    assert "main" in _says(client, box, command)
    assert "main" in _says(client, box, f"sudo {command}")


def test_it_is_read_only_inside_and_has_certificates_alone(
    client: SyncSandboxClient, box: str, index: PackageIndex
) -> None:
    refused = client.run_command(box, "echo x >> $SSL_CERT_FILE || rm $SSL_CERT_FILE", user="root")
    assert refused.exit_code != 0 and "Read-only file system" in refused.output
    inside = _says(client, box, "cat $SSL_CERT_FILE")
    own = index.authority.read_text().partition("-----BEGIN PRIVATE")[0].strip()
    assert own in inside and inside.count("BEGIN CERTIFICATE") > 1, "the authorities of this machine are there, too"
    assert "PRIVATE" not in inside and "PRIVATE" in index.authority.read_text()


def test_sandboxes_that_run_already_get_it_with_the_next_start(index: PackageIndex, tmp_path: Path) -> None:
    before = PaddockServer(tmp_path / "home")
    before.start()
    try:
        with SyncSandboxClient(before.url, api_key=before.key) as client:
            box = client.create_sandbox("newcomer").sandbox_id
            assert _says(client, box, "echo ${SSL_CERT_FILE-none}") == "none\n"
    finally:
        before.stop()
    with serving(before.home, **index.settings) as after, SyncSandboxClient(after.url, api_key=after.key) as client:
        assert "BEGIN CERTIFICATE" in _says(client, box, "cat $SSL_CERT_FILE")


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("-----BEGIN PRIVATE KEY-----", "no PEM block")])
def test_a_file_without_certificates_keeps_the_server_from_starting(
    tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "authority.pem").write_text(content)
    server = PaddockServer(tmp_path / "home", PADDOCK_EXTRA_CA=str(tmp_path / "authority.pem"))
    with pytest.raises(RuntimeError, match=f"PADDOCK_EXTRA_CA: '.*authority.pem' cannot be used: .*{said}"):
        server.start()
