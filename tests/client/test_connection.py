"""Which server, which key."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.client.connection import find_api_key, find_server_url
from tests.client.script import BOX, answer, script

HERE = "http://127.0.0.1:8080"


def test_the_server_is_the_argument_then_the_environment_then_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_server_url() == HERE
    monkeypatch.setenv("SANDBOX_PORT", "9999")
    assert find_server_url() == "http://127.0.0.1:9999"
    monkeypatch.setenv("SANDBOX_HOST", "boxes")
    assert find_server_url() == "http://boxes:9999"
    monkeypatch.setenv("SANDBOX_HOST", "::1")
    assert find_server_url() == "http://[::1]:9999"
    monkeypatch.setenv("PADDOCK_URL", "https://paddock.example/")
    assert find_server_url() == "https://paddock.example"
    assert find_server_url("http://named:1/") == "http://named:1"
    assert find_server_url("named:1") == "http://named:1"


def test_the_key_is_the_argument_then_the_environment_then_the_key_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_api_key(HERE) is None
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path))
    (tmp_path / "key").write_text("from-file\n")
    assert find_api_key(HERE) == "from-file"
    monkeypatch.setenv("PADDOCK_API_KEY", "from-environment")
    assert find_api_key(HERE) == "from-environment"
    assert find_api_key(HERE, "from-argument\n") == "from-argument"


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "http://0.0.0.0:1", "http://127.8.0.1"])
def test_the_key_file_opens_the_server_of_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path))
    (tmp_path / "key").write_text("secret")
    assert find_api_key(url) == "secret"


@pytest.mark.parametrize(
    "url", ["http://example.com", "https://127.0.0.1.example.com", "http://localhost.evil", "http://10.0.0.1"]
)
def test_the_key_file_is_never_sent_to_another_machine(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path))
    (tmp_path / "key").write_text("secret")
    assert find_api_key(url) is None


def test_the_key_travels_as_a_bearer_token() -> None:
    server = script(answer(BOX))
    server.client(api_key="k").get_status("alice_1f2e3d4c")
    assert server.header("authorization") == ["Bearer k"]
