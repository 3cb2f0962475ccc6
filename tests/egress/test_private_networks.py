"""The operator's private network, on the wire: a member does not get there, whoever the operator lets in does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from paddock.errors import Forbidden
from tests.e2b.server import PaddockServer, delete_all
from tests.support.private_network import PrivateNetwork, possible, private_network
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not possible(), reason="a network of its own needs root, ip and unshare"),
    pytest.mark.timeout(900),
]
NAME = "db.corp.test"
REBOUND = "innocent.test"
MODES = ["proxy", pytest.param("full", marks=pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft"))]


@pytest.fixture(scope="module")
def network() -> Iterator[PrivateNetwork]:
    with private_network() as made:
        yield made


def named(home: Path, network: PrivateNetwork, **settings: str) -> PaddockServer:
    """A server on whose host these names lead into the private network."""
    hosts = home.parent / f"{home.name}.hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{network.address} {NAME} {REBOUND}\n")
    within = ("unshare", "-m", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh")
    return PaddockServer(home, within=within, PADDOCK_POOL_SIZE="0", **settings)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, network: PrivateNetwork) -> Iterator[PaddockServer]:
    """Its operator has opened nothing."""
    made = named(tmp_path_factory.mktemp("closed") / "home", network)
    made.start()
    try:
        yield made
        delete_all(made)
    finally:
        made.stop()


@pytest.fixture
def admin(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        yield client


@pytest.fixture
def member(server: PaddockServer, admin: SyncSandboxClient) -> Iterator[SyncSandboxClient]:
    key = admin.create_key("mallory").key
    with SyncSandboxClient(server.url, api_key=key) as client:
        yield client


def says(client: SyncSandboxClient, sandbox_id: str, url: str) -> str:
    """What a program in the sandbox gets from there; empty where it gets nothing."""
    script = f"import urllib.request as u; print(u.urlopen('{url}', timeout=60).read().decode())"
    return client.run_command(sandbox_id, f'python3 -c "{script}" 2>/dev/null').stdout.strip()


def urls(network: PrivateNetwork) -> list[str]:
    return [network.url, *(f"http://{name}:{network.port}/" for name in (NAME, REBOUND))]


@pytest.mark.parametrize("mode", MODES)
def test_a_member_gets_nowhere_by_number_nor_by_name(
    member: SyncSandboxClient, network: PrivateNetwork, mode: str
) -> None:
    wishes: list[Any] = [[network.network], [network.address], ["10.0.0.0/8"]]
    for allow in wishes:
        with pytest.raises(Forbidden, match="PADDOCK_EGRESS_REACHABLE"):
            member.create_sandbox("mallory", egress={"mode": mode, "allow": allow})
    box = member.create_sandbox("mallory", egress={"mode": mode, "allow": ["0.0.0.0/0", "*", NAME, REBOUND]})
    for allow in wishes:
        with pytest.raises(Forbidden):
            member.set_egress(box.sandbox_id, allow=allow)
    assert [says(member, box.sandbox_id, url) for url in urls(network)] == ["", "", ""]
    refused = [one for one in member.get_egress(box.sandbox_id).latest if not one.allowed]
    assert refused and {one.address for one in refused} == {network.address}
    assert all("PADDOCK_EGRESS_REACHABLE" in one.reason for one in refused)


@pytest.mark.parametrize("mode", MODES)
def test_an_admin_opens_it_for_one_sandbox_and_a_restart_keeps_that(
    server: PaddockServer, admin: SyncSandboxClient, member: SyncSandboxClient, network: PrivateNetwork, mode: str
) -> None:
    by_network = admin.create_sandbox("alice", egress={"mode": mode, "allow": [network.network]}).sandbox_id
    by_name = admin.create_sandbox("alice", egress={"mode": mode, "private": [NAME]}).sandbox_id
    own = member.create_sandbox("mallory", egress=mode).sandbox_id
    admin.set_egress(own, allow=[network.address, "pypi.org"])
    number, name, rebound = urls(network)

    def reached() -> list[list[str]]:
        return [[says(admin, box, url) for url in (number, name, rebound)] for box in (by_network, by_name, own)]

    # By network: the address, by whatever name. By name: that name alone, and not the address behind it.
    expected = [["internal"] * 3, ["", "internal", ""], ["internal", "", ""]]
    assert reached() == expected
    server.restart()
    assert reached() == expected
    member.set_egress(own, allow=["pypi.org"])
    assert says(member, own, number) == ""
    with pytest.raises(Forbidden):
        member.set_egress(own, allow=[network.address])


def test_a_remote_mcp_server_is_no_way_around(
    admin: SyncSandboxClient, member: SyncSandboxClient, network: PrivateNetwork
) -> None:
    """The server makes that connection in the sandbox's stead."""
    own = member.create_sandbox("mallory").sandbox_id
    member.put_mcp_server(own, "inner", {"url": f"http://{NAME}:{network.port}/mcp"})
    wait_until(lambda: member.get_mcp_server(own, "inner").status not in ("starting", "idle"))
    found = member.get_egress(own).latest
    assert found and not any(one.allowed for one in found)


@pytest.mark.parametrize("opened", ["network", "name"])
def test_the_settings_open_it_for_all(tmp_path: Path, network: PrivateNetwork, opened: str) -> None:
    reachable = network.network if opened == "network" else NAME
    server = named(tmp_path / "home", network, PADDOCK_EGRESS_REACHABLE=reachable)
    server.start()
    try:
        with SyncSandboxClient(server.url, api_key=server.key) as admin:
            key = admin.create_key("mallory").key
        with SyncSandboxClient(server.url, api_key=key) as member:
            allow = [network.address] if opened == "network" else [NAME]
            box = member.create_sandbox("mallory", egress={"allow": allow}).sandbox_id
            plain = member.create_sandbox("mallory").sandbox_id
            where = network.url if opened == "network" else f"http://{NAME}:{network.port}/"
            assert says(member, box, where) == says(member, plain, where) == "internal"
            if opened == "name":
                assert [says(member, plain, url) for url in urls(network)] == ["", "internal", ""]
        delete_all(server)
    finally:
        server.stop()
