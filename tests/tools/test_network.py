"""HTTP from inside the sandbox, to a server that runs there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.tools.workbench import Workbench

SERVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path == "/redirect":
            self.send_response(302); self.send_header("Location", "/there"); self.end_headers(); return
        self.send_response(418 if self.path == "/teapot" else 200)
        data = b"\\x00\\x01" if self.path == "/binary" else b"x" * 50000 if self.path == "/long" else json.dumps(
            {"path": self.path, "method": self.command, "body": body, "headers": dict(self.headers)}).encode()
        self.send_header("Content-Type", "application/json"); self.send_header("X-Thing", "yes")
        self.send_header("Content-Length", str(len(data))); self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(params=["curl", "python"])
async def site(request: pytest.FixtureRequest, work: Workbench) -> AsyncIterator[tuple[Workbench, str]]:
    """With curl, and where there is none: there, another program of that name is found to be missing."""
    path = await work.put("server.py", SERVER)
    task = (await work.does("run_command", command=f"python3 {path}", background=True))["task_id"]
    said = await work.does("task_output", task_id=task, stdout_offset=0, wait=60)
    if request.param == "python":
        # A PATH with python3 and what a shell needs, but no curl.
        await work.shell(
            f"mkdir -p {work.at('bin')}; for p in python3 env sh; do ln -sf $(command -v $p) {work.at('bin')}; done"
        )
        await work.does("env_set", name="PATH", value=work.at("bin"))
    yield work, f"http://127.0.0.1:{said['stdout'].strip()}"
    await work.does("env_set", name="PATH", value=None)
    await work.does("task_stop", task_id=task)


async def test_an_answer_has_status_headers_and_body(site: tuple[Workbench, str]) -> None:
    work, url = site
    got = await work.does("http_request", url=f"{url}/a?b=c", headers={"X-Mine": "ü ok"})
    assert (got["status"], got["headers"]["x-thing"]) == (200, "yes")
    body = json.loads(got["body"])
    assert (body["path"], body["method"]) == ("/a?b=c", "GET")
    posted = await work.does("http_request", url=url, method="POST", json_body={"a": ["ü"]})
    body = json.loads(posted["body"])
    assert (json.loads(body["body"]), body["headers"]["Content-Type"]) == ({"a": ["ü"]}, "application/json")
    assert (await work.does("http_request", url=url, method="HEAD"))["status"] == 200
    assert (await work.does("http_request", url=f"{url}/teapot"))["status"] == 418


async def test_redirects_are_followed_unless_not(site: tuple[Workbench, str]) -> None:
    work, url = site
    followed = await work.does("http_request", url=f"{url}/redirect")
    assert (followed["status"], followed["url"]) == (200, f"{url}/there")
    stayed = await work.does("http_request", url=f"{url}/redirect", follow_redirects=False)
    assert (stayed["status"], stayed["headers"]["location"]) == (302, "/there")


async def test_binary_and_long_bodies_go_to_files(site: tuple[Workbench, str]) -> None:
    work, url = site
    assert "save_to" in (await work.call("http_request", url=f"{url}/binary")).text
    saved = await work.does("http_request", url=f"{url}/binary", save_to=work.at("b"))
    assert (saved["saved_to"], saved["size"]) == (work.at("b"), 2)
    long = await work.does("http_request", url=f"{url}/long")
    assert (long["size"], len(long["body"]) < 31_000) == (50_000, True)
    assert (await work.does("read_file", path=long["body_file"]))["size"] == 50_000


async def test_no_answer_is_said_with_a_reason(site: tuple[Workbench, str]) -> None:
    work, _ = site
    assert "port_list" in await work.fails("http_request", url="http://127.0.0.1:9/")
    assert "line breaks" in await work.fails("http_request", url="http://127.0.0.1:9/", headers={"A": "b\nc: d"})


async def test_a_name_that_does_not_resolve_is_told_from_a_host_that_is_not_allowed(work: Workbench) -> None:
    unresolved = await work.fails("http_request", url="https://example.invalid/")
    assert "No answer" in unresolved and "The name example.invalid does not resolve" in unresolved
    refused = await work.fails("http_request", url="https://10.9.8.7/")
    assert refused.endswith("The sandbox's egress rules do not allow this host.")
