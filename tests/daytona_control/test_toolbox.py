"""The toolbox on the wire: field names, status codes, and what is where."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from email.parser import BytesParser
from typing import Any

import httpx
import pytest

from tests.daytona_control.conftest import Daytona, refused


class Box:
    """One sandbox's toolbox."""

    def __init__(self, daytona: Daytona, key: str) -> None:
        self.daytona = daytona
        self.key = key

    async def get(self, path: str, /, **query: Any) -> httpx.Response:
        return await self.daytona.http.get(f"/toolbox/{self.key}{path}", params=query)

    async def post(self, path: str, body: Any = None, /, **query: Any) -> httpx.Response:
        return await self.daytona.http.post(f"/toolbox/{self.key}{path}", json=body, params=query)

    async def delete(self, path: str, /, **query: Any) -> httpx.Response:
        return await self.daytona.http.delete(f"/toolbox/{self.key}{path}", params=query)

    async def put(self, path: str, data: bytes) -> None:
        fields = {"files[0].path": (None, path), "files[0].file": (path, data)}
        answer = await self.daytona.http.post(f"/toolbox/{self.key}/files/bulk-upload", files=fields)
        assert answer.status_code == 200, answer.text


@pytest.fixture
async def box(daytona: Daytona) -> AsyncIterator[Box]:
    yield Box(daytona, (await daytona.new())["id"])


async def test_a_command_answers_with_its_exit_code_and_both_streams_in_order(box: Box) -> None:
    body = {"command": "echo 1; echo 2 >&2; echo 3; exit 4", "cwd": "/tmp", "envs": {"A": "b"}}
    answer = await box.post("/process/execute", body)
    assert answer.json() == {"exitCode": 4, "result": "1\n2\n3\n"}


async def test_a_command_that_cannot_start_ends_with_minus_one(box: Box) -> None:
    answer = await box.post("/process/execute", {"command": "true", "cwd": "/nowhere"})
    assert (answer.status_code, answer.json()["exitCode"]) == (200, -1)


async def test_a_command_that_takes_too_long_is_killed_and_times_out(box: Box) -> None:
    answer = await box.post("/process/execute", {"command": "sleep 600", "timeout": 1})
    refused(answer, 408, "timeout", "PROCESS_EXECUTION_TIMEOUT")


async def test_a_command_longer_than_an_argument_can_be_runs(box: Box) -> None:
    answer = await box.post("/process/execute", {"command": f"x={'y' * 300_000}; echo ${{#x}}"})
    assert answer.json() == {"exitCode": 0, "result": "300000\n"}


async def test_code_runs_as_a_script_with_its_arguments(box: Box) -> None:
    body = {"code": "import sys\nprint(sys.argv[1:])\nsys.exit(2)", "language": "python", "argv": ["a", "b c"]}
    answer = await box.post("/process/code-run", body)
    assert answer.json() == {"exitCode": 2, "result": "['a', 'b c']\n", "artifacts": {"charts": []}}


async def test_a_traceback_shows_the_code_alone(box: Box) -> None:
    answer = await box.post("/process/code-run", {"code": "def f():\n    raise ValueError('no')\nf()"})
    said = answer.json()["result"]
    assert answer.json()["exitCode"] == 1
    assert said.startswith("Traceback")
    assert "driver" not in said
    assert said.endswith("ValueError: no\n")


async def test_an_unknown_language_is_refused(box: Box) -> None:
    refused(await box.post("/process/code-run", {"code": "x", "language": "cobol"}), 400, "cobol")


async def test_a_session_remembers_between_its_commands(box: Box) -> None:
    assert (await box.post("/process/session", {"sessionId": "s 1"})).status_code == 201
    refused(await box.post("/process/session", {"sessionId": "s 1"}), 409, "already exists")
    first = (await box.post("/process/session/s%201/exec", {"command": "cd /tmp; X=5; echo o; echo e >&2"})).json()
    assert first == {"cmdId": first["cmdId"], "exitCode": 0, "output": "o\ne\n", "stdout": "o\n", "stderr": "e\n"}
    second = (await box.post("/process/session/s%201/exec", {"command": "pwd; echo $X"})).json()
    assert second["stdout"] == "/tmp\n5\n"
    shown = (await box.get("/process/session/s%201")).json()
    assert shown["sessionId"] == "s 1"
    assert [command["exitCode"] for command in shown["commands"]] == [0, 0]
    assert (await box.delete("/process/session/s%201")).status_code == 204
    refused(await box.get("/process/session/s%201"), 404, "not found", "PROCESS_NOT_FOUND")


async def test_an_async_command_answers_at_once_and_is_asked_for_later(box: Box) -> None:
    await box.post("/process/session", {"sessionId": "s"})
    answer = await box.post("/process/session/s/exec", {"command": "read x; echo got $x; exit 3", "runAsync": True})
    assert answer.status_code == 202
    command = answer.json()["cmdId"]
    assert answer.json() == {"cmdId": command}
    running = (await box.get(f"/process/session/s/command/{command}")).json()
    assert "exitCode" not in running
    assert (await box.post(f"/process/session/s/command/{command}/input", {"data": "it"})).status_code == 204
    follow = await box.get(f"/process/session/s/command/{command}/logs", follow="true")
    assert follow.content == b"\x01\x01\x01it\ngot it\n"
    ended = (await box.get(f"/process/session/s/command/{command}")).json()
    assert ended["exitCode"] == 3
    refused(await box.post("/process/session/s/exec", {"command": "true"}), 410, "ended", "SESSION_ENDED")
    answer = await box.post(f"/process/session/s/command/{command}/input", {"data": "x"})
    refused(answer, 410, "completed", "COMMAND_ALREADY_COMPLETED")
    assert (await box.delete("/process/session/s")).status_code == 204


async def test_files_come_and_go_in_parts(box: Box) -> None:
    await box.put("a/one.txt", b"one")
    answer = await box.post("/files/bulk-download", {"paths": ["a/one.txt", "nope", "/workspace/a/one.txt"]})
    head = b"Content-Type: " + answer.headers["content-type"].encode() + b"\r\n\r\n"
    parts = BytesParser().parsebytes(head + answer.content).get_payload()
    assert isinstance(parts, list)
    names = [part.get_param("name", header="content-disposition") for part in parts]
    assert names == ["file", "error", "file"]
    assert [part.get_filename() for part in parts] == ["a/one.txt", "nope", "/workspace/a/one.txt"]
    assert parts[0].get_payload() == "one"
    assert '"FILE_NOT_FOUND"' in str(parts[1].get_payload())
    assert answer.content.rstrip().endswith(b"--")


async def test_an_upload_that_fails_says_which_file(box: Box) -> None:
    await box.post("/files/folder", None, path="dir", mode="755")
    fields = {"files[0].path": (None, "dir"), "files[0].file": ("dir", b"x")}
    answer = await box.daytona.http.post(f"/toolbox/{box.key}/files/bulk-upload", files=fields)
    assert answer.status_code == 400
    assert answer.json()["errors"][0].startswith("dir: ")


async def test_files_are_described_listed_moved_and_deleted(box: Box) -> None:
    await box.put("f.txt", b"12345")
    info = (await box.get("/files/info", path="f.txt")).json()
    assert (info["name"], info["size"], info["isDir"], info["permissions"]) == ("f.txt", 5, False, "0644")
    assert info["mode"] == "-rw-r--r--"
    assert (await box.post("/files/permissions", None, path="f.txt", mode="600")).status_code == 200
    assert (await box.post("/files/folder", None, path="d/e", mode="700")).status_code == 201
    assert (await box.post("/files/move", None, source="f.txt", destination="d/e/g.txt")).status_code == 200
    listed = (await box.get("/files", path="d", depth=2)).json()
    assert [(each["path"], each["permissions"]) for each in listed] == [
        ("/workspace/d/e", "0700"),
        ("/workspace/d/e/g.txt", "0600"),
    ]
    refused(await box.delete("/files", path="d"), 400, "recursive", "INVALID_FILE_PATH")
    assert (await box.delete("/files", path="d", recursive="true")).status_code == 204
    refused(await box.get("/files", path="d"), 404, "", "FILE_NOT_FOUND")


async def test_texts_are_found_and_replaced(box: Box) -> None:
    await box.put("src/a.py", b"x = 1\ny = x + 1\n")
    await box.put("src/b.txt", b"nothing: 1.0 and .x\n")
    found = (await box.get("/files/find", path="src", pattern="x +")).json()
    assert found == [{"file": "/workspace/src/a.py", "line": 2, "content": "y = x + 1"}]
    assert (await box.get("/files/search", path="src", pattern="*.py")).json() == {"files": ["/workspace/src/a.py"]}
    body = {"files": ["src/a.py", "none"], "pattern": "x", "newValue": "z"}
    answers = (await box.post("/files/replace", body)).json()
    assert answers[0] == {"file": "src/a.py", "success": True}
    assert (answers[1]["file"], answers[1]["success"]) == ("none", False)
    assert (await box.get("/files/download", path="src/a.py")).content == b"z = 1\ny = z + 1\n"


async def test_a_signed_url_opens_one_file_until_its_key_is_rotated(box: Box) -> None:
    await box.put("s.txt", b"signed")
    http = box.daytona.http
    key = (await http.get(f"/api/sandbox/{box.key}/signing-key")).json()

    async def fetch(path: str, signed: str, expires: int = 0) -> httpx.Response:
        digest = hmac.new(key.encode(), f"v1:files:GET:{signed}:{expires}".encode(), hashlib.sha256).digest()
        signature = "v1_" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        query = {"path": path, "expires": expires, "signature": signature}
        url = f"/toolbox/{box.key}/files/download"
        return await http.get(url, params=query, headers={"Authorization": ""})

    assert (await fetch("s.txt", "s.txt")).content == b"signed"
    refused(await fetch("other.txt", "s.txt"), 401, "signature")
    refused(await fetch("s.txt", "s.txt", 1000), 401, "signature")
    assert (await http.post(f"/api/sandbox/{box.key}/signing-key/rotate")).json() != key
    refused(await fetch("s.txt", "s.txt"), 401, "signature")


async def test_variables_that_are_set_later_are_seen_by_what_starts_later(daytona: Daytona) -> None:
    box = Box(daytona, (await daytona.new(env={"OLD": "1"}))["id"])
    assert (await box.post("/env", {"set": {"NEW": "2"}, "unset": ["OLD"]})).status_code == 200
    said = await daytona.run(box.key, "echo [$OLD] [$NEW]")
    assert said["result"] == "[] [2]\n"
    assert (await daytona.info(box.key))["env"].get("NEW") == "2"


async def test_where_things_are(box: Box) -> None:
    assert (await box.get("/work-dir")).json() == {"dir": "/workspace"}
    assert (await box.get("/user-home-dir")).json() == {"dir": "/home/user"}
    assert (await box.get("/port/3999/in-use")).json() == {"isInUse": False}
    assert (await box.get("/process/pty")).json() == {"sessions": []}
    assert (await box.get("/process/session")).json() == []


async def test_a_language_server_that_was_not_started_is_not_initialized(box: Box) -> None:
    body = {"languageId": "python", "pathToProject": "/workspace", "uri": "file:///workspace/a.py"}
    refused(await box.post("/lsp/did-open", body), 400, "not initialized", "LSP_SERVER_NOT_INITIALIZED")


LANGUAGE_SERVER = """#!/usr/bin/env python3
import json, sys
def answer(number, result):
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    print(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}", end="", flush=True)
def symbols(depth):
    found = []
    for number in range(depth):
        found = [{"name": str(number), "kind": 1, "children": found}]
    return found
while head := sys.stdin.readline():
    sys.stdin.readline()
    asked = json.loads(sys.stdin.read(int(head.split()[1])))
    if "id" in asked:
        answer(asked["id"], symbols(200) if asked["method"].endswith("Symbol") else {})
"""


async def test_language_servers_of_one_sandbox_and_what_they_hold_are_bounded(daytona: Daytona) -> None:
    made = await daytona.new(env={"PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin"})
    box = Box(daytona, made["id"])
    await box.put("/workspace/bin/pylsp", LANGUAGE_SERVER.encode())
    await box.post("/process/execute", {"command": "chmod 755 /workspace/bin/pylsp; mkdir -p /workspace/{0..9}"})
    which = [{"languageId": "python", "pathToProject": f"/workspace/{number}"} for number in range(9)]
    for each in which[:8]:
        answer = await box.post("/lsp/start", each)
        assert answer.status_code == 200, answer.text
    refused(await box.post("/lsp/start", which[8]), 429, "8 language servers")
    asked = {**which[0], "uri": "file:///workspace/0/a.py"}
    found = await box.get("/lsp/document-symbols", **asked)
    assert [each["name"] for each in found.json()] == [str(number) for number in reversed(range(200))]
    assert (await box.post("/lsp/stop", which[0])).status_code == 200
    assert (await box.post("/lsp/start", which[8])).status_code == 200
    for each in which[1:]:
        await box.post("/lsp/stop", each)


@pytest.mark.parametrize("path", ["/process/execute", "/process/session", "/files/replace", "/git/clone"])
async def test_a_body_without_what_is_needed_is_a_bad_request(box: Box, path: str) -> None:
    refused(await box.post(path, {}), 400, "")
