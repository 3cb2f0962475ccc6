"""Whatever goes wrong, the answer has one shape, and the server goes on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from paddock import errors
from paddock.server.context import ServerContext
from paddock.store.database import Store
from tests.api.conftest import assert_error

MISSING = "alice_00000000"


@pytest.fixture(autouse=True)
async def goes_on(client: httpx.AsyncClient) -> AsyncIterator[None]:
    yield
    assert (await client.get("/health")).status_code == 200


async def test_health_needs_no_key(stranger: httpx.AsyncClient) -> None:
    answer = await stranger.get("/health")
    assert (answer.status_code, answer.json()["status"], answer.json()["database"]) == (200, "ok", "ok")
    assert (await stranger.head("/health")).status_code == 200
    assert (await stranger.get("/")).json()["docs"] == "/docs"
    assert (await stranger.get("/docs")).status_code == 200
    assert (await stranger.get("/openapi.json")).status_code == 200


async def test_health_tells_how_large_the_databases_log_is(
    stranger: httpx.AsyncClient, context: ServerContext, sandbox: str
) -> None:
    assert context.store.file is not None
    log = context.store.file.with_name(context.store.file.name + "-wal")
    with log.open("ab") as grown:  # what follows the last commit is not read by anybody
        grown.write(bytes(1 << 20))
    smallest = log.stat().st_size
    told = (await stranger.get("/health")).json()["database_log_bytes"]
    assert smallest <= told <= log.stat().st_size


def test_of_postgresql_there_is_no_log_to_tell() -> None:
    assert Store("postgresql://db.test/paddock").log_bytes is None


async def test_health_is_degraded_when_the_database_is_gone(
    stranger: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(context, "healthy", gone)
        answer = await stranger.get("/health")
    assert (answer.status_code, answer.json()["status"], answer.json()["database"]) == (503, "degraded", "unavailable")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": "wrong"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer "},
    ],
)
async def test_every_other_route_needs_a_key(
    app: FastAPI, stranger: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for path, operations in app.openapi()["paths"].items():
        if path in ("/health", "/ready"):
            continue
        names = {"key_id": 1, "user_id": "x", "context_id": "x", "name": "x", "tool": "x"}
        url = path.format(sandbox_id=MISSING, process_id="p_0000000000000000", **names)
        for method in operations:
            answer = await stranger.request(method, url, headers=headers)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            if method != "head":
                assert_error(answer, 401, "unauthorized")


async def test_a_stranger_is_turned_away_before_the_body_is_read(stranger: httpx.AsyncClient) -> None:
    assert_error(await stranger.post("/sandboxes/create", content=b"{"), 401)


async def test_both_ways_to_give_a_key(stranger: httpx.AsyncClient, key: str) -> None:
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer  {key}"}):
        assert (await stranger.get("/me", headers=headers)).status_code == 200


async def test_an_unknown_route_and_a_wrong_method(client: httpx.AsyncClient) -> None:
    assert_error(await client.get("/nowhere"), 404, "not_found")
    assert_error(await client.get("/sandboxes/"), 404)
    for method, path, allowed in [
        ("GET", "/sandboxes/create", "POST"),
        ("DELETE", "/sandboxes/run-command", "POST"),
        ("DELETE", "/sandboxes/status", "GET"),
        ("PUT", f"/sandboxes/{MISSING}", "DELETE, GET"),
        ("PATCH", f"/sandboxes/{MISSING}/files", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "/sandboxes", "GET"),
        ("TRACE", "/keys", "GET, POST"),
        ("POST", "/health", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
    ]:
        answer = await client.request(method, path)
        assert_error(answer, 405, "method_not_allowed")
        assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


@pytest.mark.parametrize(
    "sandbox_id", [MISSING, "x", "a b", "ä_00000000", "a" * 150, "..", "alice_0000000g", "alice_00000000\n"]
)
async def test_a_sandbox_that_is_not_there_is_not_found(client: httpx.AsyncClient, sandbox_id: str) -> None:
    body = {"sandbox_id": sandbox_id}
    for answer in [
        await client.post("/sandboxes/connect", json=body),
        await client.post("/sandboxes/run-command", json={**body, "command": "id"}),
        await client.post("/sandboxes/timeout", json={**body, "timeout": 5}),
        await client.get("/sandboxes/status", params=body),
        await client.post("/sandboxes/read-file", json={**body, "path": "/x"}),
    ]:
        assert_error(answer, 404, "sandbox_not_found")
    if sandbox_id != "..":
        answer = await client.get(f"/sandboxes/{quote(sandbox_id)}/processes")
        assert_error(answer, 404, "sandbox_not_found")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"user_id": "a",}',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"a":' * 20_000,
        b"1" * 9999,
        b"null",
        b"[]",
        b'"x"',
    ],
)
async def test_a_body_that_is_not_what_it_should_be(client: httpx.AsyncClient, raw: bytes) -> None:
    answer = await client.post("/sandboxes/create", content=raw, headers={"Content-Type": "application/json"})
    assert assert_error(answer, answer.status_code)["code"] in {"malformed_request", "invalid_request"}
    assert answer.status_code in {400, 422}
    assert len(answer.content) < 2000


async def test_malformed_json_is_a_400(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/sandboxes/create", content=b'{"user_id": ', headers={"Content-Type": "application/json"}
    )
    assert_error(answer, 400, "malformed_request")


NAN = float("nan")
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "fields",
    [
        {"user_id": "../etc"},
        {"user_id": ""},
        {"user_id": "a" * 64},
        {"user_id": "a\0"},
        {"user_id": "\ud800"},
        {"user_id": None},
        {"user_id": 7},
        {"timeout": -1},
        {"timeout": 0},
        {"timeout": 86_401},
        {"timeout": 10**40},
        {"timeout": NAN},
        {"timeout": float("inf")},
        {"timeout": "60"},
        {"timeout": 1.5},
        {"timeout": True},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0"}},
        {"env": {"A": 1}},
        {"env": {"\ud800": "x"}},
        {"env": ["A"]},
        {"metadata": {"a": "\ud800"}},
        {"metadata": {"\ud800": 1}},
        {"metadata": {"a": "\0"}},
        {"metadata": {"a": NAN}},
        {"metadata": {"a": DEEP}},
        {"metadata": {"a": "x" * 20_000}},
        {"metadata": []},
        {"resources": {"cpu": 0}},
        {"resources": {"cpu": NAN}},
        {"resources": {"memory_mb": 10**30}},
        {"resources": {"gpu": 1}},
        {"template_id": "../x"},
        {"provider": "no-such-provider"},
        {"git_url": "not a url"},
        {"git_url": "ftp://x/y"},
        {"on_timeout": "explode"},
        {"unknown": 1},
        {"\ud800": 1},
        {"x" * 100_000: 1},
    ],
)
async def test_a_sandbox_that_cannot_be_is_refused(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    raw = json.dumps({"user_id": "alice", **fields}).encode()
    answer = await client.post("/sandboxes/create", content=raw, headers={"Content-Type": "application/json"})
    error = assert_error(answer, 422)
    assert len(answer.content) < 3000
    assert error["code"] == "invalid_request"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ""},
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "x" * 131_072},
        {"command": "ü" * 100_000},
        {"command": ["ls"]},
        {"timeout": -1},
        {"timeout": NAN},
        {"timeout": 1e300},
        {"timeout": 4000},
        {"hard_timeout": 0},
        {"hard_timeout": float("-inf")},
        {"background": "yes"},
        {"cwd": "../etc"},
        {"cwd": "/a/../b"},
        {"cwd": "/a\0"},
        {"user": "Root!"},
        {"env": {"1A": "x"}},
    ],
)
async def test_a_command_that_cannot_be_is_refused(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    raw = json.dumps({"sandbox_id": MISSING, "command": "true", **fields}).encode()
    answer = await client.post("/sandboxes/run-command", content=raw, headers={"Content-Type": "application/json"})
    assert_error(answer, 422)
    assert len(answer.content) < 3000


@pytest.mark.parametrize("given", ["", "x" * 256, "tab\there", "ü"])
async def test_an_idempotency_key_must_be_plain(client: httpx.AsyncClient, given: str) -> None:
    body = {"sandbox_id": MISSING, "command": "true"}
    answer = await client.post("/sandboxes/run-command", json=body, headers={"Idempotency-Key": given.encode()})
    assert_error(answer, 422)


async def test_bodies_that_are_too_large_are_refused(client: httpx.AsyncClient) -> None:
    big = {"sandbox_id": MISSING, "command": "x" * 10_000_000}
    assert_error(await client.post("/sandboxes/run-command", json=big), 413, "payload_too_large")
    metadata = {"user_id": "alice", "metadata": {"a": "x" * (1 << 20)}}
    assert_error(await client.post("/sandboxes/create", json=metadata), 413, "payload_too_large")
    content = {"sandbox_id": MISSING, "path": "/x", "content": "x" * (2 << 20)}
    assert_error(await client.post("/sandboxes/write-file", json=content), 404)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
async def test_a_large_body_that_nobody_can_read_now_is_not_called_malformed(
    client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def refused(*_words: Any, **_named: Any) -> None:
        raise OSError(number, os.strerror(number))

    asked = {"sandbox_id": sandbox, "path": "/workspace/large", "content": "x" * (5 << 20)}
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", refused)
        answer = await client.post("/sandboxes/write-file", json=asked)
        assert "Nothing was done; try again" in assert_error(answer, 503, "unavailable")["message"]
        assert answer.headers["Retry-After"]
    assert (await client.post("/sandboxes/write-file", json=asked)).status_code == 200
    assert_error(await client.post("/sandboxes/write-file", content=b"[" * (5 << 20)), 422)
    assert_error(await client.post("/sandboxes/write-file", content=b"\xff" * (5 << 20)), 400, "malformed_request")


async def test_what_breaks_while_a_body_is_read_is_ours(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_words: Any, **_named: Any) -> None:
        raise KeyError("a mistake of ours")

    asked = {"sandbox_id": MISSING, "path": "/workspace/large", "content": "x" * (5 << 20)}
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(asyncio, "create_subprocess_exec", broken)
        assert_error(await client.post("/sandboxes/write-file", json=asked), 500)
    assert "unexpected failure" in [entry["event"] for entry in logs]


async def test_a_body_that_hides_its_size_is_counted(client: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    assert_error(await client.post("/sandboxes/create", content=endless()), 413, "payload_too_large")


async def test_a_url_that_is_not_utf8_is_malformed(client: httpx.AsyncClient) -> None:
    assert_error(await client.get(f"/sandboxes/{MISSING}/files?path=/%ff"), 400, "malformed_request")
    assert_error(await client.get("/sandboxes/%c3%28"), 400, "malformed_request")
    assert_error(await client.get("/sandboxes/%ed%a0%80"), 400, "malformed_request")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=1e3", "status=nope", "user_id=..", "cursor=" + "x" * 501]
)
async def test_queries_have_bounds(client: httpx.AsyncClient, query: str) -> None:
    error = assert_error(await client.get(f"/sandboxes?{query}"), 422)
    assert error["details"]["errors"][0]["field"].startswith(query.partition("=")[0])


@pytest.mark.parametrize("query", ["since=yesterday", "since=2030-02-30", "until=0", "since=2030-1-1"])
async def test_days_are_days(client: httpx.AsyncClient, query: str) -> None:
    assert_error(await client.get(f"/usage?{query}"), 422)


@pytest.mark.parametrize("header", ["x", "1", "1.", "-1.0", "1.2.3", "9" * 30 + ".0", "nan.nan"])
async def test_a_last_event_id_of_nonsense_is_refused(client: httpx.AsyncClient, sandbox: str, header: str) -> None:
    url = f"/sandboxes/{sandbox}/processes/p_0000000000000000/stream"
    assert_error(await client.get(url, headers={"Last-Event-ID": header}), 422)


async def test_a_request_id_is_kept_if_it_is_one(client: httpx.AsyncClient) -> None:
    assert (await client.get("/me", headers={"X-Request-Id": "mine-1"})).headers["x-request-id"] == "mine-1"
    for bad in ("", "a b", "x" * 200, 'a"b'):
        given = (await client.get("/me", headers={"X-Request-Id": bad})).headers["x-request-id"]
        assert given.startswith("r_")


async def test_a_defect_of_ours_is_a_500_in_the_same_shape(
    client: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(context.accounts, "list_keys", broken)
        answer = await client.get("/keys")
    error = assert_error(answer, 500, "internal_error")
    assert "secret" not in answer.text
    logged = next(line for line in logs if line["event"] == "unexpected failure")
    assert logged["request_id"] == error["request_id"]
    assert isinstance(logged["exc_info"], ZeroDivisionError)


async def test_when_to_try_again_is_said_in_the_header(
    client: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> None:
        raise errors.StoreUnavailable(
            "The database does not answer.", details={"nan": NAN, "x": object}, retry_after=1.2
        )

    with monkeypatch.context() as patched:
        patched.setattr(context.accounts, "list_keys", down)
        answer = await client.get("/keys")
    assert_error(answer, 503, "database_unavailable")
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize("kind", [errors.HostDiskFull, errors.Unsupported, errors.StoreUnavailable])
async def test_what_is_refused_for_a_known_reason_is_no_defect(
    client: httpx.AsyncClient, context: ServerContext, monkeypatch: pytest.MonkeyPatch, kind: type[errors.PaddockError]
) -> None:
    """Or whoever asks again while the disk is full fills it with tracebacks."""

    async def refused(*_: object) -> None:
        raise kind("There is no room.")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(context.accounts, "list_keys", refused)
        answer = await client.get("/keys")
    assert_error(answer, kind.status, kind.code)
    assert "unexpected failure" not in {line["event"] for line in logs}
    assert not [line for line in logs if "exc_info" in line]


async def test_the_log_has_a_line_per_request_and_no_secret(client: httpx.AsyncClient, key: str) -> None:
    with capture_logs() as logs:
        await client.post("/sandboxes/run-command", json={"sandbox_id": MISSING, "command": "echo my-password"})
    line = next(line for line in logs if line["event"] == "request")
    assert (line["method"], line["path"], line["status"], line["user"]) == (
        "POST",
        "/sandboxes/run-command",
        404,
        "admin",
    )
    assert {"duration", "request_id"} <= set(line)
    assert key not in repr(logs)
    assert "my-password" not in repr(logs)
