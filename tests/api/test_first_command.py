"""A create that carries its first command."""

from __future__ import annotations

from typing import Any

import httpx

from paddock.ids import first_process_id
from tests.api.conftest import assert_error


async def create(client: httpx.AsyncClient, command: str, key: str | None = None, **wishes: Any) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {"user_id": "alice", "command": command, **wishes}
    answer = await client.post("/sandboxes/create", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_the_answer_has_the_sandbox_and_what_its_command_said(client: httpx.AsyncClient) -> None:
    made = await create(client, "pwd; id -un; echo $MINE; echo oops >&2; exit 3", env={"MINE": "1"})
    assert made["status"] == "running" and made["success"] is True
    command = made["command"]
    assert (command["stdout"], command["stderr"]) == ("/workspace\nuser\n1\n", "oops\n")
    assert (command["exit_code"], command["status"]) == (3, "completed"), "a command that fails is an answer"
    assert command["sandbox_id"] == made["sandbox_id"]
    assert command["process_id"] == first_process_id(made["sandbox_id"])
    without = await client.post("/sandboxes/create", json={"user_id": "alice"})
    assert without.json()["command"] is None


async def test_asked_for_again_it_is_the_same_sandbox_and_the_same_process(client: httpx.AsyncClient) -> None:
    line = "echo run >> /workspace/runs; cat /workspace/runs"
    first, second = await create(client, line, "k-1"), await create(client, line, "k-1")
    assert second["sandbox_id"] == first["sandbox_id"]
    assert second["command"] == {**first["command"], "duration": second["command"]["duration"]}
    assert second["command"]["stdout"] == "run\n"
    processes = await client.get(f"/sandboxes/{first['sandbox_id']}/processes")
    assert len(processes.json()["processes"]) == 1
    usage = await client.get(f"/sandboxes/{first['sandbox_id']}/usage")
    assert usage.json()["total"]["commands"] == 1, "it counts once"
    other = {"user_id": "alice", "command": "echo another"}
    answer = await client.post("/sandboxes/create", json=other, headers={"Idempotency-Key": "k-1"})
    assert_error(answer, 409, "idempotency_mismatch")


async def test_after_its_soft_timeout_the_command_goes_on(client: httpx.AsyncClient) -> None:
    made = await create(client, "read line < /workspace/pipe || sleep 600", command_timeout=0)
    assert (made["command"]["status"], made["command"]["exit_code"]) == ("running", None)
    process = await client.get(f"/sandboxes/{made['sandbox_id']}/processes/{made['command']['process_id']}")
    assert process.json()["label"] == "read line < /workspace/pipe || sleep 600"


async def test_a_create_that_fails_runs_nothing(client: httpx.AsyncClient) -> None:
    body = {"user_id": "alice", "command": "echo hi", "template_id": "no-such-template"}
    assert_error(await client.post("/sandboxes/create", json=body), 404, "template_not_found")
    for command in ("", "nul \0 in it", 7):
        answer = await client.post("/sandboxes/create", json={"user_id": "alice", "command": command})
        assert_error(answer, 422, "invalid_request")
    assert (await client.get("/sandboxes")).json()["sandboxes"] == []
