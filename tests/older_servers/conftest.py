"""One server on the ``local`` provider, found as a user's program finds it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddock import SandboxClient, SyncSandboxClient
from paddock.client.answers import Sandbox
from tests.e2b.server import PaddockServer

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def box(local_server: PaddockServer) -> Iterator[Sandbox]:
    """A sandbox for all tests here: each writes under a name of its own."""
    with SyncSandboxClient(local_server.url, api_key=local_server.key) as client:
        made = client.create_sandbox("newcomer")
        yield made
        client.delete_sandbox(made.sandbox_id)


@pytest.fixture(autouse=True)
def surroundings(local_server: PaddockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SANDBOX_HOST", "SANDBOX_PORT", "SANDBOX_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("PADDOCK_URL", local_server.url)
    monkeypatch.setenv("PADDOCK_API_KEY", local_server.key)


@pytest.fixture
async def client() -> AsyncIterator[SandboxClient]:
    async with SandboxClient() as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"n{secrets.token_hex(4)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first one waits for a server to start."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(400))
