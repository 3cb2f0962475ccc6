"""The limit on a user's bandwidth, on the wire: all sandboxes of a user share it, whichever way the bytes go."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer, delete_all
from tests.support.private_network import PrivateNetwork, possible, private_network

pytestmark = [
    pytest.mark.skipif(not possible(), reason="a network of its own needs root, ip and unshare"),
    pytest.mark.timeout(900),
]
MODES = ["proxy", pytest.param("full", marks=pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft"))]
MEGABITS = 4
BYTES_A_SECOND = MEGABITS * 125_000
SIZE = 2_000_000
LEAST_SECONDS = SIZE / BYTES_A_SECOND - 1.5
"""A second's worth may go at once, and a piece is moved before it is paid for."""
DOWN = "import urllib.request as u; print(len(u.urlopen('{url}bytes/{size}', timeout=60).read()))"
UP = "import urllib.request as u; print(u.urlopen('{url}', data=bytes({size}), timeout=60).read().decode())"
ABANDONED = (
    "import socket, time\n"
    "for _ in range({times}):\n"
    "    s = socket.create_connection(('127.0.0.1', 3128))\n"
    "    s.sendall(b'CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n'); assert b' 200 ' in s.recv(999)\n"
    "    s.sendall(b'GET /bytes/{size} HTTP/1.0\\r\\n\\r\\n'); time.sleep(0.2); s.close()\n"
)


@pytest.fixture(scope="module")
def network() -> Iterator[PrivateNetwork]:
    with private_network() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, network: PrivateNetwork) -> Iterator[PaddockServer]:
    made = PaddockServer(
        tmp_path_factory.mktemp("limited") / "home",
        PADDOCK_EGRESS_REACHABLE=network.network,
        PADDOCK_QUOTA_BANDWIDTH_MBIT=str(MEGABITS),
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
def member(server: PaddockServer, admin: SyncSandboxClient) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=admin.create_key("mallory").key) as client:
        yield client


def python(client: SyncSandboxClient, sandbox_id: str, script: str, **values: object) -> tuple[str, float]:
    began = time.monotonic()
    client.write_file(sandbox_id, "/workspace/script.py", script.format(**values))
    done = client.run_command(sandbox_id, "python3 script.py", timeout=120)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip(), time.monotonic() - began


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("script", "said"), [(DOWN, str(SIZE)), (UP, "read")], ids=["down", "up"])
def test_a_transfer_takes_its_time_and_arrives_whole(
    member: SyncSandboxClient, network: PrivateNetwork, mode: str, script: str, said: str
) -> None:
    box = member.create_sandbox("mallory", egress=mode).sandbox_id
    answer, seconds = python(member, box, script, url=network.url, size=SIZE)
    assert answer == said and seconds >= LEAST_SECONDS
    reason = member.get_egress(box).latest[0].reason
    assert "complete (slowed down for " in reason and f"by the limit of {MEGABITS} Mbit/s of its user" in reason


def test_sandboxes_of_one_user_share_it_and_others_do_not(
    admin: SyncSandboxClient, member: SyncSandboxClient, network: PrivateNetwork
) -> None:
    boxes = [member.create_sandbox("mallory", egress="proxy").sandbox_id for _ in range(2)]
    other = admin.create_sandbox("admin", egress="proxy").sandbox_id
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda box: python(member, box, DOWN, url=network.url, size=SIZE), boxes))
    assert [said for said, _ in both] == [str(SIZE)] * 2
    assert time.monotonic() - began >= 2 * SIZE / BYTES_A_SECOND - 1.5
    assert python(admin, other, DOWN, url=network.url, size=20 * SIZE)[0] == str(20 * SIZE)
    assert admin.get_egress(other).latest[0].reason == "complete"


def test_what_arrived_and_was_never_read_counts(member: SyncSandboxClient, network: PrivateNetwork) -> None:
    """Else connections that are made and left would bring in what waits in the kernel's buffers for nothing."""
    box = member.create_sandbox("mallory", egress="proxy").sandbox_id
    python(member, box, ABANDONED, times=2, host=network.address, port=network.port, size=50_000_000)
    _, seconds = python(member, box, DOWN, url=network.url, size=1000)
    latest = member.get_egress(box).latest
    assert "slowed down" in " ".join(one.reason for one in latest), (seconds, latest)


def test_an_admin_changes_it_for_one_user(
    server: PaddockServer, admin: SyncSandboxClient, network: PrivateNetwork
) -> None:
    with SyncSandboxClient(server.url, api_key=admin.create_key("frugal").key) as frugal:
        assert frugal.me().quota.max_bandwidth_mbit == MEGABITS
        admin.change_user("frugal", quota={"max_bandwidth_mbit": 0})
        box = frugal.create_sandbox("frugal", egress="proxy").sandbox_id
        assert python(frugal, box, DOWN, url=network.url, size=SIZE)[0] == str(SIZE)
        assert frugal.get_egress(box).latest[0].reason == "complete"
