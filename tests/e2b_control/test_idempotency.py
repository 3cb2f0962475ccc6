"""Idempotency keys: the same request gets the same answer again."""

from __future__ import annotations

import asyncio

import pytest

from paddock.providers.faults import FaultKind
from paddock.store import sandboxes
from tests.e2b_control.conftest import Control, refused


def key(text: str = "job-7") -> dict[str, str]:
    return {"Idempotency-Key": text}


async def _rows(control: Control) -> int:
    async with control.world.context.store.read() as connection:
        return (await sandboxes.totals(connection, control.who.user_id)).live


async def test_the_same_request_makes_one_sandbox(control: Control) -> None:
    first = await control.create(headers=key(), metadata={"a": "1"})
    again = await control.create(headers=key(), metadata={"a": "1"})
    assert (again.status_code, again.json()) == (201, first.json())
    assert len(await control.world.machines()) == 1


async def test_the_answer_is_the_same_when_the_sandbox_is_gone_and_the_server_too(control: Control) -> None:
    first = await control.create(headers=key())
    await control.http.delete(f"/sandboxes/{first.json()['sandboxID']}")
    again = await control.create(headers=key())
    assert (again.status_code, again.json()) == (201, first.json())
    assert await control.world.machines() == {}


async def test_another_request_under_the_same_key_is_refused(control: Control) -> None:
    await control.create(headers=key())
    body = refused(await control.create(headers=key(), timeout=77), 409, "different request")
    assert body["error_code"] == "idempotency_request_mismatch"


async def test_keys_of_two_users_are_two(control: Control, other: Control) -> None:
    mine, theirs = await control.create(headers=key()), await other.create(headers=key())
    assert mine.json()["sandboxID"] != theirs.json()["sandboxID"]


async def test_a_request_that_is_still_running_is_said_to_be(control: Control) -> None:
    control.world.faults.add("create", FaultKind.SLOW, seconds=0.4)
    first = asyncio.create_task(control.create(headers=key()))
    while not await _rows(control):
        await asyncio.sleep(0.01)
    body = refused(await control.create(headers=key()), 409, "still running")
    assert body["error_code"] == "idempotency_in_progress"
    assert (await first).status_code == 201
    assert (await control.create(headers=key())).json() == (await first).json()


async def test_a_refusal_is_given_again(control: Control) -> None:
    first = await control.create(headers=key(), templateID="nowhere")
    again = await control.create(headers=key(), templateID="nowhere")
    assert (again.status_code, again.json()) == (404, first.json())
    assert refused(await control.create(headers=key()), 409, "")["error_code"] == "idempotency_request_mismatch"


async def test_what_failed_for_want_of_something_may_be_tried_again(control: Control) -> None:
    control.world.faults.add("templates", FaultKind.FAIL)
    refused(await control.create(headers=key()), 503, "")
    assert (await control.create(headers=key())).status_code == 201


async def test_a_create_that_the_provider_refused_is_not_tried_again(control: Control) -> None:
    control.world.faults.add("create", FaultKind.REFUSE)
    refused(await control.create(headers=key()), 503, "refused")
    answer = await control.create(headers=key())
    refused(answer, 503, "refused")
    assert answer.headers["should-retry"] == "false"
    assert await control.world.machines() == {}


@pytest.mark.parametrize("text", ["", "a b", "x" * 256, "a/b", "a\tb"])
async def test_a_malformed_key_is_a_bad_request(control: Control, text: str) -> None:
    refused(await control.create(headers=key(text)), 400, "Idempotency-Key")


async def test_a_key_is_forgotten_after_a_day(control: Control) -> None:
    first = await control.create(headers=key())
    await control.pass_time(86_401)
    await control.world.context.reconciler.sweep()
    again = await control.create(headers=key())
    assert again.json()["sandboxID"] != first.json()["sandboxID"]
