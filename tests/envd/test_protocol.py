"""The Connect protocol and the routes around it: framing, failures, headers, and what is not there."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.api.conftest import LiveServer
from tests.envd.box import ENVD, HEAD, Box, envelope, envelopes
from tests.support.waiting import PATIENCE_S

START = "process.Process/Start"


async def test_a_method_that_does_not_exist_is_unimplemented_and_not_a_404(box: Box) -> None:
    for method in ("process.Process/Nothing", "filesystem.Filesystem/Nothing", "other.Service/Method"):
        answer = await box.call(method)
        assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff", b"[" * 100_000])
async def test_what_is_not_json_is_an_invalid_argument(box: Box, body: bytes) -> None:
    unary = await box.post("/process.Process/List", body, **{"Content-Type": "application/json"})
    assert (unary.status_code, unary.json()["code"]) == (400, "invalid_argument")
    async with box.stream(START, envelope(body)) as stream:
        [(flags, last)] = await stream.rest()
    assert (flags, last["error"]["code"]) == (2, "invalid_argument")


@pytest.mark.parametrize(
    "document",
    [
        {"process": "x"},
        {"process": {"cmd": 1}},
        {"process": {"cmd": "/bin/true", "args": "x"}},
        {"process": {"cmd": "/bin/true", "envs": {"A": 1}}},
        {"process": {"cmd": "/bin/true", "envs": {"A=B": "x"}}},
        {"process": {"cmd": "/bin/true"}, "stdin": "yes"},
        {"process": {"cmd": "/bin/true"}, "pty": {"size": {"rows": -1, "cols": 80}}},
        {"process": {"cmd": "/bin/true", "args": ["nul\0"]}},
        {"process": {"cmd": "/bin/true", "cwd": "~other/x"}},
    ],
)
async def test_fields_of_the_wrong_kind_are_invalid_arguments(box: Box, document: dict[str, object]) -> None:
    assert (await box.failed_start(document))["code"] == "invalid_argument"


async def test_unknown_fields_and_null_are_ignored(box: Box) -> None:
    document = {"process": {"cmd": "/bin/true", "args": None, "new": {}}, "pty": None, "tag": None, "other": 1}
    async with box.stream(START, document) as stream:
        items = await stream.rest()
    assert items[-1] == (2, {})


async def test_streams_and_calls_have_their_own_types(box: Box) -> None:
    for path, kind in ((START, "application/json"), ("process.Process/List", "application/connect+json")):
        answer = await box.post("/" + path, b"{}", **{"Content-Type": kind})
        assert answer.status_code == 415
    proto = await box.post("/process.Process/List", b"", **{"Content-Type": "application/proto"})
    assert (proto.status_code, proto.headers["accept-post"]) == (415, "application/json")


async def test_a_broken_frame_ends_the_stream_with_its_reason(box: Box) -> None:
    cases = {
        b"": "invalid_argument",
        b"\0\0\0": "invalid_argument",
        HEAD.pack(0, 10) + b"{}": "invalid_argument",
        HEAD.pack(0, 1 << 31): "resource_exhausted",
        envelope({}, flags=1): "unimplemented",
    }
    for body, code in cases.items():
        answer = await box.post("/" + START, body, **{"Content-Type": "application/connect+json"})
        if code == "unimplemented":
            assert answer.json()["code"] == code
        else:
            [(flags, last)] = envelopes(answer.content)
            assert (flags, last["error"]["code"]) == (2, code)


async def test_a_client_may_leave_its_side_of_a_stream_open(box: Box, server: LiveServer) -> None:
    """Python's client sends its one message in chunks, and what it does with the rest is its own affair."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = envelope(box.start("echo hi"))
    headers = {**box.headers(), "Content-Type": "application/connect+json", "Host": "x", "Transfer-Encoding": "chunked"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"POST /{START} HTTP/1.1\r\n{head}\r\n{len(body):x}\r\n".encode() + body + b"\r\n")
    async with asyncio.timeout(PATIENCE_S):
        seen = b""
        while b'"end"' not in seen:
            seen += await reader.read(65536)
    assert seen.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_call_has_a_deadline(box: Box) -> None:
    async with box.running("sleep 100", stdin=True) as stream:
        pid = await stream.pid()
        more = {"process": {"pid": pid}, "input": {"stdin": "eHh4" * 100_000}}
        late = await box.call("process.Process/SendInput", more, **{"Connect-Timeout-Ms": "300"})
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        await box.ok("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    bad = await box.call("process.Process/List", {}, **{"Connect-Timeout-Ms": "soon"})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_argument")


async def test_any_page_may_ask_if_it_has_the_token(box: Box, client: httpx.AsyncClient) -> None:
    preflight = await client.options(
        "/process.Process/Start",
        headers={
            "Origin": "https://any.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "e2b-sandbox-id,e2b-sandbox-port,x-access-token,content-type",
        },
    )
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "x-access-token" in preflight.headers["access-control-allow-headers"]
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert (await box.call("process.Process/List")).headers["access-control-allow-origin"] == "*"
    assert (await client.get("/envs", headers=_routing(box))).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"])
async def test_what_is_for_the_inside_only_is_not_there(box: Box, path: str) -> None:
    answer = await box.client.post(path, json={}, headers=box.headers())
    assert (answer.status_code, answer.json()["code"]) == (404, 404)


async def test_other_paths_and_methods_are_refused_in_envds_form(box: Box) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/files", 405), ("GET", f"/{START}", 405)):
        answer = await box.client.request(method, path, headers=box.headers())
        assert (answer.status_code, answer.json()["code"]) == (status, status)


async def test_health_metrics_and_variables(box: Box) -> None:
    health = await box.client.get("/health", headers=_routing(box))
    assert (health.status_code, health.content, health.headers["cache-control"]) == (204, b"", "no-store")
    metrics = (await box.client.get("/metrics", headers=box.headers())).json()
    names = ("ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib")
    assert set(metrics) == {*names, "disk_used", "disk_total"}
    assert metrics["mem_total"] > 0 and 0 <= metrics["cpu_used_pct"] <= 100
    envs = (await box.client.get("/envs", headers=box.headers())).json()
    assert envs["FROM_SANDBOX"] == "yes" and envs["E2B_SANDBOX_ID"] == box.key


async def test_answers_are_plain_ascii_json(box: Box) -> None:
    await box.put("/tmp/ünï", b"")
    answer = await box.call("filesystem.Filesystem/Stat", {"path": "/tmp/ünï"})
    assert answer.content.isascii()
    assert json.loads(answer.content)["entry"]["name"] == "ünï"


def _routing(box: Box) -> dict[str, str]:
    return {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": ENVD}
