"""What agents type first, `pip install`, through the API: in every template, as `user` and with `sudo`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer
from tests.support.debian_template import put_debian_into
from tests.support.package_index import NAME, wheel
from tests.support.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the template debian is made once, which takes minutes

_INSTALL = f"pip install -q --no-index --find-links wheels {NAME.replace('_', '-')} 2>&1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    with serving(tmp_path_factory.mktemp("packages") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        yield client


@pytest.fixture(params=["host", "debian"])
def box(request: pytest.FixtureRequest, server: PaddockServer, client: SyncSandboxClient) -> Iterator[str]:
    if request.param == "debian" and not (server.home / "templates" / "debian").exists():
        put_debian_into(server.home)
    if request.param == "host" and not Path("/usr/bin/pip3").exists():
        pytest.skip("the host itself has no pip")
    made = client.create_sandbox("newcomer", request.param).sandbox_id
    client.upload(made, f"wheels/{NAME}-1.0-py3-none-any.whl", wheel())
    yield made
    client.delete_sandbox(made)


def test_pip_installs_for_the_user_and_its_programs_are_found_wherever_commands_run(
    client: SyncSandboxClient, box: str
) -> None:
    def says(command: str) -> str:
        ran = client.run_command(box, command)
        assert ran.exit_code == 0, ran.output
        return ran.stdout.strip()

    said = says(_INSTALL)
    assert "externally" not in said, said
    assert says(f"python3 -c 'import {NAME}; print({NAME}.NUMBER)'") == "4711"
    assert says("parcel; bash -lc parcel; sh -c parcel") == "\n".join(["ran 4711"] * 3)
    assert says("command -v parcel") in ("/home/user/.local/bin/parcel", "/usr/local/bin/parcel")
    assert "ran 4711" in client.call_tool(box, "run_command", {"command": "parcel"}).text
    assert "ran 4711" in client.call_tool(box, "shell_run", {"command": "parcel"}).text
    client.put_service(box, "parcel", 7000, "parcel > /workspace/service; exec python3 -m http.server 7000")
    program_url = client.get_port_urls(box, 7000).program_url
    assert program_url is not None
    httpx.get(program_url, timeout=60).raise_for_status()  # which starts it
    assert says("cat service") == "ran 4711"


def test_pip_installs_with_sudo_for_all_users(client: SyncSandboxClient, box: str) -> None:
    installed = client.run_command(box, f"sudo {_INSTALL}")
    assert installed.exit_code == 0 and "externally" not in installed.output, installed.output
    for user in ("user", "root"):
        assert client.run_command(box, "parcel; command -v parcel", user=user).stdout == (
            "ran 4711\n/usr/local/bin/parcel\n"
        )
