"""Answers whose size a sandbox chooses: none of them holds up the other users of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2b.server import PaddockServer
from tests.support.serving import serving
from tests.support.stalls import assert_loop_was_free, stalls

STALL_SECONDS = 0.1
"""That the loop may compute in one go, by the clock of its own thread."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    home = tmp_path_factory.mktemp("costly") / "home"
    with serving(home, PADDOCK_LOOP_STALL_MS=str(round(STALL_SECONDS * 1000)), PADDOCK_POOL_SIZE="0") as running:
        yield running


def headers_of(server: PaddockServer) -> dict[str, str]:
    """For either way to show a key."""
    return {"X-API-Key": server.key, "Authorization": f"Bearer {server.key}"}


@pytest.fixture
def client(server: PaddockServer) -> Iterator[httpx.Client]:
    """Its test leaves the loop free."""
    before = len(stalls(server.log))
    with httpx.Client(base_url=server.url, headers=headers_of(server), timeout=120) as made:
        yield made
    assert [stall for stall in stalls(server.log)[before:] if stall["cpu_seconds"] > STALL_SECONDS] == []


@dataclass(frozen=True)
class Box:
    client: httpx.Client
    sandbox_id: str
    key: str

    def run(self, command: str) -> None:
        body = {"sandbox_id": self.sandbox_id, "command": command, "timeout": 100}
        ran = self.client.post("/sandboxes/run-command", json=body).raise_for_status().json()
        assert ran["exit_code"] == 0, ran["output"]

    def install(self, path: str, script: str) -> None:
        place = {"path": path, "mode": "0755", "user": "root"}
        answer = self.client.put(f"/sandboxes/{self.sandbox_id}/files", params=place, content=script.encode())
        answer.raise_for_status()

    def daytona(self, path: str, /, **query: str) -> httpx.Response:
        return self.client.get(f"/daytona/toolbox/{self.key}{path}", params=query)


@pytest.fixture
def box(client: httpx.Client) -> Box:
    made = client.post("/sandboxes/create", json={"user_id": "alice"}).raise_for_status().json()
    return Box(client, made["sandbox_id"], made["key"])


@contextmanager
def memory_bounded(server: PaddockServer, most_mb: int) -> Iterator[None]:
    """Meanwhile the server holds at most so much more than before."""
    about = Path(f"/proc/{server.pid}")
    (about / "clear_refs").write_text("5")  # the peak is now what it has
    before = peak_mb(about)
    yield
    assert peak_mb(about) - before < most_mb


def peak_mb(about: Path) -> int:
    return int((about / "status").read_text().partition("VmHWM:")[2].split()[0]) // 1024


# Daytona's git, whose program is the sandbox's

ENDLESS = "#!/bin/sh\nyes '{}' | head -c 16000000 | tr '\\n' '{}'\n"


@pytest.mark.parametrize(
    ("route", "record", "end"),
    [
        ("status", "? a", "\\0"),
        ("history", "a\x1fb\x1fc\x1f1700000000\x1fd", "\\0"),
        ("branches", "a", "\\n"),
        ("remotes", "remote.a.url b", "\\n"),
    ],
)
def test_git_that_prints_without_end_is_refused(
    server: PaddockServer, box: Box, route: str, record: str, end: str
) -> None:
    box.install("/usr/local/bin/git", ENDLESS.format(record, end))
    with memory_bounded(server, 100):
        answer = box.daytona(f"/git/{route}", path="/workspace")
    assert (answer.status_code, answer.json()["code"]) == (413, "GIT_OUTPUT_TOO_LARGE")
    assert "/process/execute" in answer.json()["message"]


def test_git_that_prints_a_great_deal_is_answered(server: PaddockServer, box: Box) -> None:
    """20,000 files, whose names double in the answer."""
    script = (
        """#!/bin/sh
    printf '# branch.head main\\0'
    seq -f '? %05.0f' 1 19999 | sed 's/$/"""
        + '"' * 150
        + """/' | tr '\\n' '\\0'
    """
    )
    box.install("/usr/local/bin/git", script)
    with memory_bounded(server, 100):
        answer = box.daytona("/git/status", path="/workspace")
    found = answer.raise_for_status().json()
    assert (found["currentBranch"], len(found["fileStatus"])) == ("main", 19_999)
    assert found["fileStatus"][0] == {
        "name": "00001" + '"' * 150,
        "extra": "",
        "staging": "Untracked",
        "worktree": "Untracked",
    }


def test_many_entries_of_git_are_refused(box: Box) -> None:
    box.install("/usr/local/bin/git", "#!/bin/sh\nseq -f '? %.0f' 1 20001 | tr '\\n' '\\0'\n")
    answer = box.daytona("/git/status", path="/workspace")
    assert (answer.status_code, answer.json()["code"]) == (413, "GIT_OUTPUT_TOO_LARGE")
    assert "20000 entries" in answer.json()["message"]


def test_what_git_prints_is_counted_before_it_is_read(tmp_path: Path) -> None:
    """There is room for what git printed, and not for the answer that it would become."""
    limits = {"PADDOCK_USER_BYTES_IN_FLIGHT": "1000000", "PADDOCK_POOL_SIZE": "0"}
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / "home", **limits))
        client = stack.enter_context(httpx.Client(base_url=server.url, headers=headers_of(server), timeout=120))
        made = client.post("/sandboxes/create", json={"user_id": "alice"}).raise_for_status().json()
        box = Box(client, made["sandbox_id"], made["key"])
        box.install("/usr/local/bin/git", "#!/bin/sh\nyes '? a' | head -c 60000 | tr '\\n' '\\0'\n")
        answer = box.daytona("/git/status", path="/workspace")
        assert (answer.status_code, len(answer.content) < 1000) == (429, True)
        assert client.get(f"/sandboxes/{box.sandbox_id}/files/list").status_code == 200


# Directories

FILES, LINKS = 60_000, 20_000
"""Names of one file, for there are not so many inodes; and symlinks."""
FILL = f"""
import os
os.makedirs("/workspace/files"); os.makedirs("/workspace/links")
os.close(os.open("/workspace/file", os.O_CREAT))
for number in range({FILES}):
    os.link("/workspace/file", f"/workspace/files/{{number:05}}-{"x" * 40}")
for number in range({LINKS}):
    os.symlink("../files", f"/workspace/links/{{number:05}}")
"""


@pytest.fixture(scope="module")
def full(server: PaddockServer) -> Iterator[tuple[Box, str]]:
    """A sandbox with full directories, and E2B's token for it."""
    with httpx.Client(base_url=server.url, headers=headers_of(server), timeout=120) as client:
        wish = {"templateID": "base", "secure": True, "timeout": 3600}
        made = client.post("/e2b/sandboxes", json=wish).raise_for_status().json()
        sandbox = client.get("/sandboxes").raise_for_status().json()["sandboxes"][0]
        box = Box(client, sandbox["sandbox_id"], sandbox["key"])
        box.install("/workspace/fill.py", FILL)
        box.run("python3 /workspace/fill.py")
        yield box, made["envdAccessToken"]


@pytest.mark.parametrize(("name", "count"), [("files", FILES), ("links", LINKS)])
def test_a_full_directory_is_listed(
    server: PaddockServer, client: httpx.Client, full: tuple[Box, str], name: str, count: int
) -> None:
    box, token = full
    path = f"/workspace/{name}"
    native = client.get(f"/sandboxes/{box.sandbox_id}/files/list", params={"path": path}).raise_for_status().json()
    daytona = box.daytona("/files", path=path).raise_for_status().json()
    about = {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": "49983", "X-Access-Token": token}
    e2b = client.post("/filesystem.Filesystem/ListDir", json={"path": path}, headers=about).raise_for_status().json()
    names = [entry["name"] for entry in native["entries"]]
    assert (len(names), names) == (count, sorted(names))
    assert [entry["name"] for entry in daytona] == names
    assert [entry["name"] for entry in e2b["entries"]] == names
    if name == "links":
        assert {entry["symlinkTarget"] for entry in e2b["entries"]} == {"/workspace/files"}
        assert {entry["type"] for entry in e2b["entries"]} == {"FILE_TYPE_DIRECTORY"}


# Code, whose interpreter is a program in the sandbox

INTERPRETER = """#!/usr/bin/env python3
import http.server, json, sys

class Interpreter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"[]")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = {"type": "stdout", "text": "a\\n" * int(asked["code"])}
        lines = [said, {"type": "end_of_execution"}]
        self.answer(b"".join(json.dumps(line).encode() + b"\\n" for line in lines))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 49999), Interpreter).serve_forever()
"""


def test_a_large_line_of_an_interpreter_is_counted_and_read_by_a_worker(tmp_path: Path) -> None:
    """Of three bytes of JSON for each letter, and as much again for what is made of it."""
    limits = {"PADDOCK_USER_BYTES_IN_FLIGHT": str(60 << 20), "PADDOCK_POOL_SIZE": "0"}
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / "home", **limits))
        client = stack.enter_context(httpx.Client(base_url=server.url, headers=headers_of(server), timeout=120))
        made = client.post("/sandboxes/create", json={"user_id": "alice"}).raise_for_status().json()
        box = Box(client, made["sandbox_id"], made["key"])
        box.install("/workspace/interpreter", INTERPRETER)
        process = {"argv": ["/workspace/interpreter"]}
        client.post(f"/sandboxes/{box.sandbox_id}/processes", json=process).raise_for_status()
        box.run("until : </dev/tcp/127.0.0.1/49999; do sleep 0.1; done")

        wish = {"sandbox_id": box.sandbox_id, "code": "10"}
        assert client.post("/sandboxes/run-code", json=wish).raise_for_status().json()["stdout"] == "a\n" * 10
        assert worker_processes(server) == 0
        wish["code"] = str(5_000_000)
        found = client.post("/sandboxes/run-code", json=wish).raise_for_status().json()
        assert (found["truncated"], len(found["stdout"])) == (True, 1 << 20)
        assert worker_processes(server) == 1
        wish["code"] = str(10_000_000)
        refused = client.post("/sandboxes/run-code", json=wish)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_bytes")
        assert_loop_was_free(server.log, STALL_SECONDS)


def worker_processes(server: PaddockServer) -> int:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline") for child in children]
    return sum(b"paddock.worker_process" in command.read_bytes() for command in commands if command.exists())


# Language servers, which are programs in the sandbox

SYMBOLS = 60_000
LANGUAGE_SERVER = """#!/usr/bin/env python3
import json, sys
def answer(number, result):
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    print(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}", end="", flush=True)
while head := sys.stdin.readline():
    sys.stdin.readline()
    asked = json.loads(sys.stdin.read(int(head.split()[1])))
    if "id" in asked:
        answer(asked["id"], [{"name": "a", "kind": "?"}] * SYMBOLS if asked["method"].endswith("Symbol") else {})
"""


def test_very_many_symbols_of_a_language_server_are_told(server: PaddockServer, client: httpx.Client, box: Box) -> None:
    box.install("/usr/local/bin/pyright-langserver", LANGUAGE_SERVER.replace("SYMBOLS", str(SYMBOLS)))
    which = {"languageId": "python", "pathToProject": "/workspace"}
    client.post(f"/daytona/toolbox/{box.key}/lsp/start", json=which).raise_for_status()
    found = box.daytona("/lsp/document-symbols", **which, uri="file:///workspace/a").raise_for_status().json()
    nowhere = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    place = {"uri": "file:///workspace/a", "range": nowhere}
    assert (len(found), found[-1]) == (SYMBOLS, {"name": "a", "kind": 1, "location": place})
    with memory_bounded(server, 400):  # each of them names the file
        refused = box.daytona("/lsp/document-symbols", **which, uri="file:///workspace/" + "x/" * 2000)
    assert refused.status_code == 429
    client.post(f"/daytona/toolbox/{box.key}/lsp/stop", json=which).raise_for_status()
