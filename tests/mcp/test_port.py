"""Port 6060 of a sandbox over real HTTP: addresses, tokens, and who sleeps on."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.e2b.server import PaddockServer
from tests.mcp.world import ERAS, Box
from tests.support.waiting import PATIENCE_S

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def visitor(box: Box, token: str | None, **headers: str) -> httpx.Client:
    given = {**ACCEPT, **headers}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    return httpx.Client(base_url=box.mcp_url.removesuffix("mcp/"), headers=given, timeout=PATIENCE_S)


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_and_called_in_both_eras_at_the_address_that_create_gave(box: Box, era: str) -> None:
    async with box.client(era, url=box.program_url) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[era]
        assert "write_file" in [tool.name for tool in (await client.list_tools()).tools]
        written = await client.call_tool("write_file", {"path": f"{era}.txt", "content": "hello"})
    assert not written.is_error and written.structured_content["size"] == 5
    assert box.run(f"cat /workspace/{era}.txt") == "hello"


def test_both_spellings_of_the_path_work_and_what_has_no_meaning_without_sessions_is_said_so(box: Box) -> None:
    with visitor(box, box.mcp_token) as client:
        for path in ("mcp", "mcp/"):
            assert client.post(path, json=INITIALIZE).status_code == 200
            assert client.get(path).status_code == 405
            assert client.delete(path).status_code == 200
        assert client.get("other").status_code == 404


def test_the_port_is_reached_by_host_name_and_by_routing_headers_too(box: Box) -> None:
    by_host = {"Host": f"6060-{box.key}.example.org"}
    by_header = {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": "6060"}
    for headers in (by_host, by_header):
        given = {**ACCEPT, "Authorization": f"Bearer {box.mcp_token}", **headers}
        answer = httpx.post(f"{box.server.url}/mcp/", json=INITIALIZE, headers=given, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
    named = httpx.get(
        f"{box.server.url}/p/{box.sandbox_id}/6060/health", headers={"X-API-Key": box.server.key}, timeout=PATIENCE_S
    )
    assert named.json()["sandbox_id"] == box.sandbox_id


def test_health_says_how_the_sandbox_is(box: Box) -> None:
    with visitor(box, box.mcp_token) as client:
        assert client.get("health").json() == {
            "status": "ok",
            "sandbox_id": box.sandbox_id,
            "sandbox_status": "running",
        }


@pytest.mark.parametrize("path", ["mcp/", "mcp", "health", "other"])
def test_nothing_is_answered_without_a_token(box: Box, path: str) -> None:
    with visitor(box, None) as client:
        for method in ("GET", "POST", "DELETE"):
            answer = client.request(method, path)
            assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_an_owners_key_opens_it_and_tokens_for_other_things_do_not(box: Box, new_box: Callable[..., Box]) -> None:
    inside = box.run("echo -n $PADDOCK_MCP_TOKEN")
    with httpx.Client(base_url=box.server.url, headers={"X-API-Key": box.server.key}, timeout=PATIENCE_S) as api:
        stranger = api.post("/keys", json={"name": "stranger", "role": "member"}).raise_for_status().json()["key"]
    assert len(inside) == 64
    expected = {box.server.key: 200, inside: 401, new_box().mcp_token: 401, "wrong": 401, stranger: 404}
    for token, status in expected.items():
        with visitor(box, token) as client:
            assert client.post("mcp/", json=INITIALIZE).status_code == status


def test_a_stranger_cannot_tell_a_sandbox_that_is_there_from_one_that_is_not(box: Box) -> None:
    answers = []
    for name in (box.sandbox_id, "alice_00000000"):
        url = f"{box.server.url}/p/{name}/6060/mcp/"
        answer = httpx.post(url, json=INITIALIZE, headers={**ACCEPT, "Authorization": "Bearer no"}, timeout=PATIENCE_S)
        answers.append((answer.status_code, answer.json()["error"]["message"]))
    assert answers[0] == answers[1] and answers[0][0] == 401


async def test_a_call_wakes_a_paused_sandbox_and_a_listing_does_not(new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.pause()
    async with box.client() as client:
        assert (await client.list_tools()).tools
        assert box.status() == "paused"
        assert not (await client.call_tool("write_file", {"path": "a", "content": "b"})).is_error
    assert box.status() == "running"


def test_a_sandbox_that_was_deleted_has_no_port(paddock: PaddockServer, new_box: Callable[..., Box]) -> None:
    box = new_box()
    box.delete()
    with visitor(box, box.mcp_token) as client:
        assert client.post("mcp/", json=INITIALIZE).status_code == 404


def test_lists_do_not_hold_tokens(box: Box) -> None:
    page = httpx.get(f"{box.server.url}/sandboxes", headers={"X-API-Key": box.server.key}, timeout=PATIENCE_S)
    assert all(each["mcp_token"] is None for each in page.raise_for_status().json()["sandboxes"])
