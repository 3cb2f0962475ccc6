from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the developer has set, and the key of the developer's own server, are no part of a test."""
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "SANDBOX_HOST", "SANDBOX_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path / "home"))
