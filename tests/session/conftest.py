from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2b.server import PaddockServer


@pytest.fixture(scope="session")
def server(local_server: PaddockServer) -> PaddockServer:
    return local_server


@pytest.fixture(autouse=True)
def surroundings(server: PaddockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server is found as a user's program finds it."""
    for name in ("SANDBOX_HOST", "SANDBOX_PORT", "SANDBOX_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("PADDOCK_URL", server.url)
    monkeypatch.setenv("PADDOCK_API_KEY", server.key)
