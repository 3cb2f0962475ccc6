"""VS Code's address always answers: with itself, or with a page that says what it needs."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.gateway.bed import Bed, Box
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SERVES = """
import http.server, pathlib, sys, time
while not pathlib.Path("/workspace/go").exists():
    time.sleep(0.05)
class Workbench(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = " ".join(sys.argv[1:]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Workbench).serve_forever()
"""
FAILS = "import sys; print('the extension folder is broken', file=sys.stderr); sys.exit(3)"

WithCodeServer = Callable[[str], Box]
Person = Callable[[Box], httpx.Client]


def test_where_it_is_missing_a_page_says_how_to_install_it(vscode_bed: Bed, person: Person) -> None:
    box = vscode_bed.create()
    with person(box) as browser:
        page = browser.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "VS Code is not installed" in page.text
    assert "paddock addon install vscode" in page.text
    with box.visitor(9000, Accept="application/json") as program:
        answer = program.get("/")
    assert answer.headers["content-type"].startswith("application/json")
    assert "paddock addon install vscode" in answer.json()["message"]


def test_while_it_starts_a_page_says_so_and_then_it_is_there(with_code_server: WithCodeServer, person: Person) -> None:
    box = with_code_server(SERVES)
    with person(box) as browser:
        page = browser.get("/")
        assert page.status_code == 503
        assert "VS Code is starting" in page.text
        assert 'http-equiv="refresh"' in page.text
        box.run("touch /workspace/go")
        page = wait_until(lambda: found if (found := browser.get("/")).status_code != 503 else None)
    assert page is not None and page.status_code == 200
    words = page.text.split()
    assert {"--auth=none", "--disable-telemetry", "--bind-addr=127.0.0.1:9000"} <= set(words)
    assert words[-1] == "/workspace"


def test_a_program_waits_until_it_is_there(with_code_server: WithCodeServer) -> None:
    box = with_code_server(SERVES)
    box.run("(sleep 3; touch /workspace/go) > /dev/null 2>&1 &")
    with box.visitor(9000, Accept="*/*") as program:
        assert program.get("/", timeout=90).status_code == 200


def test_where_it_fails_a_page_has_its_last_words(with_code_server: WithCodeServer, person: Person) -> None:
    box = with_code_server(FAILS)
    with person(box) as browser:
        page = wait_until(lambda: found if (found := browser.get("/")).status_code != 503 else None)
    assert page is not None and "VS Code did not start" in page.text
    assert "the extension folder is broken" in page.text
    assert "exit code 3" in page.text


def test_the_url_of_the_answer_opens_at_the_first_click(vscode_bed: Bed) -> None:
    with vscode_bed.api() as api:
        made = api.post("/sandboxes/create", json={"user_id": "alice"}).raise_for_status().json()
    box = Box(vscode_bed, made["sandbox_id"], made["key"])
    target = made["vscode_url"].partition(f".localhost:{vscode_bed.port}")[2]
    with box.visitor(9000, key=None, Accept="text/html") as browser:
        assert browser.get("/").status_code == 403
        first = browser.get(target)
        assert (first.status_code, first.headers["location"]) == (302, "/")
        page = browser.get("/", headers={"Cookie": first.headers["set-cookie"].partition(";")[0]})
    assert "VS Code" in page.text
    box.delete()
