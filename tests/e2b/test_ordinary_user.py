"""Metrics on a server that is no root: what is the sandbox's, not the host's, in our own words and in E2B's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from paddock.client.answers import Sandbox
from tests.e2b.server import PaddockServer
from tests.support.serving import serving

_MIB = 1 << 20
_MEMORY_MB, _DISK_MB = 384, 768
_USED_MB = 64
# In a user namespace of its own, without rights in it and without control groups: as an ordinary user has it.
ORDINARY = (
    *("unshare", "-U", "-m", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c"),
    'mount -t tmpfs none /sys/fs/cgroup && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"',
    "sh",
)
_HOLD = (
    f"import sys; held = b'x' * {_USED_MB * _MIB}; open('big', 'wb').write(held); print('there', flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    within = ORDINARY if os.geteuid() == 0 else ()
    with serving(tmp_path_factory.mktemp("ordinary") / "home", within=within) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        yield client


@pytest.fixture
def box(client: SyncSandboxClient) -> Iterator[Sandbox]:
    """With a file and a process of some size."""
    made = client.create_sandbox("alice", resources={"memory_mb": _MEMORY_MB, "disk_mb": _DISK_MB})
    layers = {layer.name: layer.active for layer in client.get_isolation(made.sandbox_id).layers}
    assert not layers["memory limit"], layers
    holder = client.start_process(made.sandbox_id, argv=["python3", "-c", _HOLD], cwd="/workspace", stdin=True)
    assert client.read_output(made.sandbox_id, holder.process_id, wait=30).raw_stdout == b"there\n"
    yield made
    client.delete_sandbox(made.sandbox_id)


def _check(memory: tuple[int, int], disk: tuple[int, int]) -> None:
    """Used, of how much: more than was just used, and less than a host and its disk have in use."""
    assert (memory[1], disk[1]) == (_MEMORY_MB * _MIB, _DISK_MB * _MIB)
    assert _USED_MB * _MIB <= memory[0] < 3 * _USED_MB * _MIB
    assert _USED_MB * _MIB <= disk[0] < 3 * _USED_MB * _MIB


def test_our_own_metrics_are_the_sandboxs(client: SyncSandboxClient, box: Sandbox) -> None:
    found = client.metrics(box.sandbox_id)
    _check((found.memory_used, found.memory_total), (found.disk_used, found.disk_total))


def test_e2bs_metrics_are_the_sandboxs(
    server: PaddockServer, box: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sdk = pytest.importorskip("e2b", reason="E2B's SDK is not installed")
    monkeypatch.chdir(tmp_path)
    for name, value in {"API_URL": f"{server.url}/e2b", "SANDBOX_URL": server.url, "API_KEY": server.key}.items():
        monkeypatch.setenv(f"E2B_{name}", value)
    for found in (sdk.Sandbox.get_metrics(box.key)[-1], sdk.Sandbox.connect(box.key).get_metrics()[-1]):
        _check((found.mem_used, found.mem_total), (found.disk_used, found.disk_total))
