"""The operator's private network on the wire, with sandboxes in containers: no surface lets a member open it.

An admin opens it for the same containers, so what a member does not reach is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paddock.client import SyncSandboxClient
from tests.docker import engine
from tests.e2b.server import PaddockServer, delete_all
from tests.egress.test_private_networks import NAME, REBOUND, named, says, urls
from tests.support.private_network import PrivateNetwork, possible, private_network

pytestmark = [
    pytest.mark.skipif(not possible(), reason="a network of its own needs root, ip and unshare"),
    pytest.mark.timeout(900),
]
UNREACHED = ["", "", ""]


@pytest.fixture(scope="module")
def network() -> Iterator[PrivateNetwork]:
    with private_network() as made:
        yield made


@pytest.fixture(scope="module", params=["near", "far"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, network: PrivateNetwork
) -> Iterator[PaddockServer]:
    """Its operator has opened nothing."""
    engine.address()
    made = named(
        tmp_path_factory.mktemp("closed") / "home",
        network,
        SANDBOX_PROVIDER="docker",
        DOCKER_HOST=os.environ.get("DOCKER_HOST", ""),
        PADDOCK_DOCKER_IMAGES=engine.DEBIAN,
        PADDOCK_DOCKER_WAY=request.param,
    )
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
def key(admin: SyncSandboxClient) -> str:
    """Of a member."""
    return admin.create_key("mallory").key


@pytest.fixture
def member(server: PaddockServer, key: str) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=key) as client:
        yield client


@pytest.fixture
def wire(server: PaddockServer, key: str) -> Iterator[httpx.Client]:
    """The same member, in the words of any client."""
    headers = {"X-API-Key": key, "Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=120) as client:
        yield client


Asked = tuple[str, str, dict[str, Any]]


def creates(allow: list[str]) -> list[Asked]:
    networks = {"networkAllowList": ",".join(f"{one}/32" if "/" not in one else one for one in allow)}
    return [
        ("POST", "/sandboxes/create", {"user_id": "mallory", "egress": {"mode": "proxy", "allow": allow}}),
        ("POST", "/sandboxes/create", {"user_id": "mallory", "egress": {"mode": "proxy", "private": allow}}),
        ("POST", "/e2b/v2/sandboxes", {"templateID": "base", "network": {"allowOut": allow}}),
        ("POST", "/daytona/api/sandbox", networks),
    ]


def changes(sandbox: str, key: str, allow: list[str]) -> list[Asked]:
    return [
        ("PUT", f"/sandboxes/{sandbox}/egress", {"mode": "proxy", "allow": allow}),
        ("PUT", f"/sandboxes/{sandbox}/egress", {"mode": "proxy", "private": allow}),
        ("PUT", f"/e2b/sandboxes/{key}/network", {"allowOut": allow}),
        ("POST", f"/daytona/api/sandbox/{key}/network-settings", {"networkAllowList": ",".join(allow)}),
    ]


def test_a_member_is_refused_by_every_surface_and_reaches_nothing(
    member: SyncSandboxClient, wire: httpx.Client, network: PrivateNetwork
) -> None:
    everything_public = {"mode": "proxy", "allow": ["0.0.0.0/0", "*", NAME, REBOUND]}
    box = member.create_sandbox("mallory", egress=everything_public).sandbox_id
    plain = member.create_sandbox("mallory")
    assert plain.provider == "docker"
    before = [one.sandbox_id for one in member.iter_sandboxes()]
    for allow in ([network.network], ["10.0.0.0/8"]):
        for method, path, body in (*creates(allow), *changes(plain.sandbox_id, plain.key, allow)):
            answer = wire.request(method, path, json=body)
            assert answer.status_code == 403, f"{method} {path} {body}: {answer.status_code} {answer.text}"
    assert [one.sandbox_id for one in member.iter_sandboxes()] == before
    for sandbox in (box, plain.sandbox_id):
        assert [says(member, sandbox, url) for url in urls(network)] == UNREACHED
        refused = [one for one in member.get_egress(sandbox).latest if not one.allowed]
        assert {one.address for one in refused} == {network.address}


def test_an_admin_opens_it_for_one_container_and_a_restart_keeps_that(
    server: PaddockServer, admin: SyncSandboxClient, member: SyncSandboxClient, network: PrivateNetwork
) -> None:
    opened = admin.create_sandbox("alice", egress={"mode": "proxy", "allow": [network.network]}).sandbox_id
    closed = member.create_sandbox("mallory").sandbox_id
    for _ in range(2):
        assert [says(admin, opened, url) for url in urls(network)] == ["internal"] * 3
        assert [says(member, closed, url) for url in urls(network)] == UNREACHED
        server.restart()
