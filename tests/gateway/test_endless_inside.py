"""MCP on a sandbox's loopback: what the sandbox's own programs send there without end, and how often they may ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.gateway.bed import Bed, Box, running
from tests.support.stalls import free_loop

RATE = 20
ASKED = 200
HEAD = "POST /mcp HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer wrong\\r\\nContent-Type: application/json\\r\\n"
FLOOD = """
import os, socket, sys, threading, time
begin, piece = (text.encode().decode("unicode_escape").encode() for text in sys.argv[1:3])
client = socket.create_connection(("127.0.0.1", 6060))
client.settimeout(2)
def read():
    try:
        while client.recv(1 << 20): pass
    except OSError: pass
threading.Thread(target=read, daemon=True).start()
sent, until = 0, time.monotonic() + 1.5
try:
    client.sendall(begin)
    while time.monotonic() < until:
        client.sendall(piece * 5000)
        sent += 5000 * len(piece)
except TimeoutError: pass
except OSError:
    print("closed", end=" ")
print(sent)
"""
ASK = """
import collections, http.client, json, sys
statuses = collections.Counter()
client = http.client.HTTPConnection("127.0.0.1", 6060)
for _ in range(int(sys.argv[1])):
    client.request("POST", "/mcp", "{}", {"Authorization": "Bearer wrong", "Content-Type": "application/json"})
    answer = client.getresponse()
    answer.read()
    statuses[str(answer.status)] += 1
print(json.dumps(statuses))
"""
FLOODS = {
    "requests sent ahead": ("", "GET /m HTTP/1.1\\r\\n\\r\\n"),
    "chunks of a byte": (HEAD + "Transfer-Encoding: chunked\\r\\n\\r\\n", "1\\r\\na\\r\\n"),
    "headers": (HEAD, "a:b\\r\\n"),
    "one header": (HEAD + "a: ", "b"),
    "trailers": (HEAD + "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n", "a:b\\r\\n"),
    "extensions of a chunk": (HEAD + "Transfer-Encoding: chunked\\r\\n\\r\\n1;", "a=b;"),
}
ENDLESS = ("headers", "one header", "trailers", "extensions of a chunk")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    home: Path = tmp_path_factory.mktemp("inside")
    with running(home, "local", PADDOCK_QUOTA_RPS=RATE) as bed:
        yield bed


@pytest.fixture(scope="module")
def box(bed: Bed) -> Iterator[Box]:
    """A member's, since admins are not limited."""
    with bed.api() as api:
        api.post("/users", json={"user_id": "member"}).raise_for_status()
        key = api.post("/keys", json={"user_id": "member", "name": "member"}).raise_for_status().json()["key"]
    with bed.api(key) as api:
        made = api.post("/sandboxes/create", json={"user_id": "member"}).raise_for_status().json()
    box = Box(bed, made["sandbox_id"], made["key"])
    with bed.api() as api:
        for name, content in (("flood.py", FLOOD), ("ask.py", ASK)):
            body = {"sandbox_id": box.sandbox_id, "path": name, "content": content}
            api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run("python3 ask.py 1")  # the first request builds the app
    yield box
    box.delete()


@pytest.mark.parametrize("kind", FLOODS)
def test_what_a_program_inside_sends_without_end_holds_nobody_up(box: Box, kind: str) -> None:
    begin, piece = FLOODS[kind]
    with free_loop(box.bed.context.watchdog):
        said = box.run(f"python3 flood.py '{begin}' '{piece}'")
    assert ("closed" in said) == (kind in ENDLESS), said


def test_wrong_tokens_from_inside_count_against_the_rate_of_the_sandboxes_owner(box: Box) -> None:
    with capture_logs() as logs:
        statuses = json.loads(box.run(f"python3 ask.py {ASKED}"))
        lines = [line for line in logs if line["event"] == "request" and line["path"] == "/mcp"]
    assert statuses.keys() == {"401", "429"}
    assert statuses["429"] > ASKED / 2, statuses
    assert len(lines) < ASKED / 2, "most of them leave no line in the log"
