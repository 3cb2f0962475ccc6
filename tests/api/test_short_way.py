"""Most creates and commands go a short way through the server. Nobody can tell it from the long one."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paddock.accounts.accounts import Principal

SHORT, LONG = "application/json", "application/json; charset=utf-8"
COMMAND, CREATE = "/sandboxes/run-command", "/sandboxes/create"
UNLIKE = {"request_id", "process_id", "duration", "sandbox_id", "key", "created_at", "started_at", "last_activity_at"}
"""What differs between any two requests."""


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        unlike = UNLIKE | {"expires_at", "mcp_url", "mcp_token", "vscode_url"}
        return {name: comparable(item) for name, item in value.items() if name not in unlike}
    return [comparable(item) for item in value] if isinstance(value, list) else value


async def both(client: httpx.AsyncClient, path: str, content: bytes, **headers: str) -> list[httpx.Response]:
    return [
        await client.post(path, content=content, headers={"Content-Type": kind, **headers}) for kind in (SHORT, LONG)
    ]


def alike(answers: list[httpx.Response]) -> httpx.Response:
    short, long = answers
    assert short.status_code == long.status_code
    assert comparable(short.json()) == comparable(long.json())
    assert set(short.headers) == set(long.headers)
    return short


CASES = [
    (COMMAND, b"", 422),
    (COMMAND, b"{", 400),
    (COMMAND, b"[]", 422),
    (COMMAND, b'"text"', 422),
    (COMMAND, b"\xff\xfe", 400),
    (COMMAND, b"[" * 10_000, 400),
    (COMMAND, b"[" * 100_000, 422),
    (COMMAND, body(sandbox_id="alice_00000000"), 422),
    (COMMAND, body(sandbox_id="alice_00000000", command="ls", unknown=1), 422),
    (COMMAND, body(sandbox_id="alice_00000000", command="ls", timeout="60"), 422),
    (COMMAND, body(sandbox_id="alice_00000000", command="ls", timeout=float("nan")), 422),
    (COMMAND, body(sandbox_id="alice_00000000", command="ls"), 404),
    (COMMAND, body(sandbox_id="nonsense", command="ls"), 404),
    (CREATE, body(user_id="../x"), 422),
    (CREATE, body(user_id="alice", template_id="no-such"), 404),
    (CREATE, body(user_id="alice", timeout=10**9), 422),
    (CREATE, body(user_id="alice", on_timeout="explode"), 422),
    (CREATE, body(user_id="alice", on_timeout="delete", resources={"cpu": 1}), 200),
]


async def test_an_answer_is_the_same_on_both(client: httpx.AsyncClient) -> None:
    """In one test for all of them: a server for each would cost more than everything that is asked of it."""
    for path, content, status in CASES:
        assert alike(await both(client, path, content)).status_code == status, (path, content[:100])


async def test_a_command_has_the_same_result(client: httpx.AsyncClient, sandbox: str) -> None:
    answer = alike(await both(client, COMMAND, body(sandbox_id=sandbox, command="echo out; echo err >&2; exit 3")))
    assert (answer.json()["output"], answer.json()["exit_code"]) == ("out\nerr\n", 3)


async def test_who_has_no_key_or_a_wrong_one_is_told_so(client: httpx.AsyncClient) -> None:
    for key in ("", "e2b_" + "0" * 40):
        headers = {"X-API-Key": key, "Authorization": ""}
        assert alike(await both(client, COMMAND, body(sandbox_id="a", command="ls"), **headers)).status_code == 401


async def test_an_idempotency_key_is_checked_and_kept(client: httpx.AsyncClient, sandbox: str) -> None:
    content = body(sandbox_id=sandbox, command="echo run >> /workspace/runs; cat /workspace/runs")
    long_key = {"Idempotency-Key": "x" * 300}
    assert alike(await both(client, COMMAND, content, **long_key)).status_code == 422
    answers = await both(client, COMMAND, content, **{"Idempotency-Key": "one"})
    assert [answer.json()["stdout"] for answer in answers] == ["run\n", "run\n"]


async def test_events_are_streamed_whoever_asks_for_them(client: httpx.AsyncClient, sandbox: str) -> None:
    wished = await client.post(COMMAND, json={"sandbox_id": sandbox, "command": "echo hi", "stream": True})
    accepted = await client.post(
        COMMAND, json={"sandbox_id": sandbox, "command": "echo hi"}, headers={"Accept": "text/event-stream"}
    )
    for answer in (wished, accepted):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "event: exit" in answer.text


async def test_a_request_that_changes_ways_is_counted_once(
    app: FastAPI, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Principal] = []
    monkeypatch.setattr(app.state.limiter, "take", taken.append)
    await both(client, COMMAND, b"{}")
    assert len(taken) == 2
