"""Commands and processes over HTTP."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import pytest

from paddock.api.app import create_app
from paddock.machine.agent import AgentMachine
from paddock.machine.base import Machine
from paddock.settings import Settings
from tests.api.conftest import assert_error, speaking_to
from tests.support.waiting import PATIENCE_S


async def run(client: httpx.AsyncClient, sandbox: str, command: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/sandboxes/run-command", json={"sandbox_id": sandbox, "command": command, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_output_is_stdout_and_then_stderr(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(client, sandbox, "echo err >&2; echo out")
    assert (result["stdout"], result["stderr"], result["output"]) == ("out\n", "err\n", "out\nerr\n")
    assert (result["exit_code"], result["status"], result["truncated"]) == (0, "completed", False)
    assert (result["stdout_offset"], result["stderr_offset"]) == (4, 4)


async def test_a_command_that_fails_is_an_answer(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(client, sandbox, "exit 7")
    assert (result["success"], result["exit_code"]) == (True, 7)


async def test_cwd_env_and_shell(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(
        client, sandbox, 'mkdir -p /workspace/x && cd x && pwd && echo "$GREETING"', env={"GREETING": "höi"}
    )
    assert result["stdout"] == "/workspace/x\nhöi\n"
    assert (await run(client, sandbox, "pwd", cwd="/workspace/x"))["stdout"] == "/workspace/x\n"


async def test_after_the_soft_timeout_the_command_goes_on(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(client, sandbox, "echo begun; sleep 0.7; echo done", timeout=0.2)
    assert (result["status"], result["exit_code"]) == ("running", None)
    path = f"/sandboxes/{sandbox}/processes/{result['process_id']}"
    waited = await client.post(f"{path}/wait", params={"timeout": 20})
    assert (waited.json()["status"], waited.json()["exit_code"]) == ("completed", 0)
    rest = await client.get(f"{path}/output", params={"stdout_offset": result["stdout_offset"]})
    assert result["stdout"] + rest.json()["stdout"] == "begun\ndone\n"
    assert rest.json()["eof"] is True


async def test_after_the_hard_timeout_it_is_killed(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(client, sandbox, "sleep 60", hard_timeout=0.3)
    assert result["status"] == "timed_out"


async def test_background_answers_at_once(client: httpx.AsyncClient, sandbox: str) -> None:
    result = await run(client, sandbox, "sleep 60", background=True)
    assert (result["status"], result["exit_code"]) == ("running", None)
    path = f"/sandboxes/{sandbox}/processes/{result['process_id']}"
    assert (await client.post(f"{path}/signal", json={"signal": "SIGKILL"})).json()["success"] is True
    ended = (await client.post(f"{path}/wait", params={"timeout": 20})).json()
    assert (ended["status"], ended["exit_code"]) == ("killed", 137)


async def test_commands_that_take_their_time_keep_no_other_waiting(client: httpx.AsyncClient, sandbox: str) -> None:
    count = 4 * (os.cpu_count() or 1) + 1  # more than have their turn at once
    waiting = [run(client, sandbox, "until [ -e /workspace/go ]; do sleep 0.1; done", timeout=60) for _ in range(count)]
    results = await asyncio.gather(*waiting, run(client, sandbox, "touch /workspace/go"))
    assert [result["status"] for result in results] == ["completed"] * (count + 1)


async def test_a_retry_with_the_same_key_meets_the_first_process(client: httpx.AsyncClient, sandbox: str) -> None:
    body = {"sandbox_id": sandbox, "command": "echo x >> /workspace/count; wc -l < /workspace/count"}
    answers = [
        await client.post("/sandboxes/run-command", json=body, headers={"Idempotency-Key": "k1"}) for _ in range(3)
    ]
    assert {answer.json()["process_id"] for answer in answers} == {answers[0].json()["process_id"]}
    assert {answer.json()["stdout"] for answer in answers} == {"1\n"}
    usage = (await client.get(f"/sandboxes/{sandbox}/usage")).json()
    assert usage["total"]["commands"] == 1
    other = await client.post(
        "/sandboxes/run-command", json={**body, "command": "true"}, headers={"Idempotency-Key": "k1"}
    )
    assert_error(other, 409, "idempotency_mismatch")


async def test_a_retry_after_a_restart_meets_the_first_process(settings: Settings, key: str) -> None:
    body = {"command": "echo x >> /workspace/count; cat /workspace/count"}
    found = []
    for _ in range(2):
        app = create_app(settings)
        async with app.router.lifespan_context(app), speaking_to(app, key) as client:
            if not found:
                body["sandbox_id"] = (await client.post("/sandboxes/create", json={"user_id": "alice"})).json()[
                    "sandbox_id"
                ]
            answer = await client.post("/sandboxes/run-command", json=body, headers={"Idempotency-Key": "k"})
            found.append((answer.json()["process_id"], answer.json()["stdout"]))
    assert found[0] == found[1] == (found[0][0], "x\n")


async def test_long_output_is_cut_between_characters_and_can_be_read_on(
    client: httpx.AsyncClient, sandbox: str
) -> None:
    result = await run(client, sandbox, "for i in $(seq 150); do printf 'ä%.0s' $(seq 5000); done; echo end")
    assert result["truncated"] is True
    assert len(result["stdout"].encode()) <= 1 << 20
    assert "\N{REPLACEMENT CHARACTER}" not in result["stdout"]
    text, offset, path = (
        result["stdout"],
        result["stdout_offset"],
        f"/sandboxes/{sandbox}/processes/{result['process_id']}",
    )
    while True:
        more = (await client.get(f"{path}/output", params={"stdout_offset": offset, "limit": 99_999})).json()
        text, offset = text + more["stdout"], more["stdout_offset"]
        if more["eof"]:
            break
    assert text == "ä" * 750_000 + "end\n"


async def test_bytes_that_are_not_text_are_replaced_and_given_in_base64(
    client: httpx.AsyncClient, sandbox: str
) -> None:
    result = await run(client, sandbox, r"printf 'a\xffb'")
    assert result["stdout"] == "a\N{REPLACEMENT CHARACTER}b"
    output = await client.get(f"/sandboxes/{sandbox}/processes/{result['process_id']}/output")
    assert output.json()["stdout_base64"] == "Yf9i"
    assert output.json()["stderr_base64"] is None


async def test_a_process_reads_what_is_written_to_it(client: httpx.AsyncClient, sandbox: str) -> None:
    started = await client.post(f"/sandboxes/{sandbox}/processes", json={"argv": ["cat"], "stdin": True})
    path = f"/sandboxes/{sandbox}/processes/{started.json()['process_id']}"
    await client.post(f"{path}/stdin", json={"data": "one "})
    first = await client.get(f"{path}/output", params={"wait": 20})
    assert (first.json()["stdout"], first.json()["eof"]) == ("one ", False)
    await client.post(f"{path}/stdin", json={"data_base64": "dHdv", "close": True})
    assert (await client.post(f"{path}/wait", params={"timeout": 20})).json()["exit_code"] == 0
    rest = await client.get(f"{path}/output", params={"stdout_offset": 4})
    assert (rest.json()["stdout"], rest.json()["eof"]) == ("two", True)
    listed = (await client.get(f"/sandboxes/{sandbox}/processes")).json()["processes"]
    assert [process["label"] for process in listed] == ["cat"]
    assert (await client.get(path)).json()["stdout_size"] == 7


async def test_waiting_for_output_ends_when_the_time_is_over(client: httpx.AsyncClient, sandbox: str) -> None:
    started = await run(client, sandbox, "sleep 60", background=True)
    path = f"/sandboxes/{sandbox}/processes/{started['process_id']}"
    async with asyncio.timeout(PATIENCE_S):
        output = (await client.get(f"{path}/output", params={"wait": 0.2})).json()
    assert (output["stdout"], output["eof"], output["status"]) == ("", False, "running")
    await client.post(f"{path}/signal", json={"signal": "KILL"})


async def test_a_paused_sandbox_wakes_for_a_command(client: httpx.AsyncClient, sandbox: str) -> None:
    await client.post("/sandboxes/pause", json={"sandbox_id": sandbox})
    assert (await run(client, sandbox, "echo awake"))["stdout"] == "awake\n"
    assert (await client.get(f"/sandboxes/{sandbox}")).json()["status"] == "running"


@pytest.mark.parametrize("process_id", ["p_0000000000000000", "nonsense", "p_..", "P_0000000000000000"])
async def test_a_process_that_is_not_there_is_not_found(
    client: httpx.AsyncClient, sandbox: str, process_id: str
) -> None:
    path = f"/sandboxes/{sandbox}/processes/{process_id}"
    assert_error(await client.get(path), 404, "process_not_found")
    assert_error(await client.get(f"{path}/stream"), 404, "process_not_found")
    assert_error(await client.post(f"{path}/signal", json={}), 404, "process_not_found")


async def test_a_process_needs_a_command_or_an_argv(client: httpx.AsyncClient, sandbox: str) -> None:
    path = f"/sandboxes/{sandbox}/processes"
    assert_error(await client.post(path, json={}), 422)
    assert_error(await client.post(path, json={"command": "true", "argv": ["true"]}), 422)


async def test_a_delete_between_the_end_and_the_reading_is_no_empty_output(
    client: httpx.AsyncClient, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it takes more than one call to the machine, as it may at any provider."""
    read, reading, deleted = AgentMachine.read_output, asyncio.Event(), asyncio.Event()

    async def read_late(*given: Any) -> Any:
        reading.set()
        await asyncio.wait_for(deleted.wait(), PATIENCE_S)
        return await read(*given)

    monkeypatch.setattr(AgentMachine, "run", Machine.run)
    monkeypatch.setattr(AgentMachine, "read_output", read_late)
    asked = client.post("/sandboxes/run-command", json={"sandbox_id": sandbox, "command": "seq 300"})
    answer = asyncio.create_task(asked)
    try:
        await asyncio.wait_for(reading.wait(), PATIENCE_S)
        assert (await client.delete(f"/sandboxes/{sandbox}")).status_code == 200
    finally:
        deleted.set()
    assert_error(await answer, 404)
