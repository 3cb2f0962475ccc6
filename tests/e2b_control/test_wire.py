"""The same through a real socket: what the server in front of the app makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.client.server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home: Path = tmp_path_factory.mktemp("wire") / "home"
    with running_server(home) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    headers = {"X-API-KEY": server.key}
    with httpx.Client(base_url=f"{server.url}/e2b", headers=headers, trust_env=False, timeout=30) as client:
        yield client


def test_a_sandbox_lives_and_ends(http: httpx.Client) -> None:
    made = http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60, "metadata": {}, "envVars": {}})
    assert made.status_code == 201, made.text
    key = made.json()["sandboxID"]
    assert [each["sandboxID"] for each in http.get("/v2/sandboxes").json()] == [key]
    assert http.get(f"/sandboxes/{key}").json()["state"] == "running"
    assert http.get(f"/sandboxes/{key}/metrics").json()[0]["memTotal"] > 0
    for step in ("pause", "refreshes"):
        answer = http.post(f"/sandboxes/{key}/{step}")
        assert answer.status_code == (204 if step == "pause" else 404)
    assert http.post(f"/v2/sandboxes/{key}/connect", json={"timeout": 60}).status_code == 201
    assert http.delete(f"/sandboxes/{key}").status_code == 204
    assert http.get("/v2/sandboxes").json() == []


def test_answers_without_a_body_say_so_and_the_connection_goes_on(http: httpx.Client) -> None:
    key = http.post("/sandboxes", json={"templateID": "base"}).json()["sandboxID"]
    for method, path in (("POST", f"/sandboxes/{key}/pause"), ("DELETE", f"/sandboxes/{key}"), ("GET", "/health")):
        answer = http.request(method, path)
        assert (answer.status_code, answer.headers["content-length"], answer.content) == (204, "0", b"")


def test_failures_keep_their_shape(http: httpx.Client) -> None:
    for method, path, body, status in (
        ("GET", "/nothing", None, 404),
        ("PUT", "/v2/sandboxes", None, 405),
        ("POST", "/v2/sandboxes", b"{", 400),
        ("POST", "/v2/sandboxes", b'{"a": "' + b"x" * (2 << 20) + b'"}', 413),
        ("GET", "/sandboxes/i%2F0", None, 404),
    ):
        answer = http.request(method, path, content=body)
        assert (answer.status_code, answer.json()["code"]) == (status, status), (path, answer.text)


def test_the_last_end_set_before_a_stop_holds_after_it(tmp_path: Path) -> None:
    with running_server(tmp_path / "home", keep=True) as server:
        headers = {"X-API-KEY": server.key}
        made = httpx.post(f"{server.url}/e2b/v2/sandboxes", json={"templateID": "base"}, headers=headers)
        key = made.json()["sandboxID"]
        httpx.post(f"{server.url}/e2b/sandboxes/{key}/timeout", json={"timeout": 4000}, headers=headers)
        before = httpx.get(f"{server.url}/e2b/sandboxes/{key}", headers=headers).json()
    with running_server(tmp_path / "home") as server:
        headers = {"X-API-KEY": server.key}
        after = httpx.get(f"{server.url}/e2b/sandboxes/{key}", headers=headers).json()
        assert (after["endAt"], after["envdAccessToken"]) == (before["endAt"], before["envdAccessToken"])
        httpx.delete(f"{server.url}/e2b/sandboxes/{key}", headers=headers)
