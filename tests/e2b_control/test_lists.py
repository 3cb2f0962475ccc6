"""Lists: filters, order, pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from sqlalchemy import event

from paddock.clock import iso
from paddock.models import State
from paddock.store import sandboxes
from tests.e2b_control.conftest import Control, refused
from tests.support.rows import EPOCH, a_sandbox


def double(**metadata: str) -> str:
    """As the SDKs do: each name and value is encoded, and then all of it as a query string."""
    return urlencode({quote(name): quote(value) for name, value in metadata.items()})


async def keys(control: Control, **params: Any) -> list[str]:
    answer = await control.http.get("/v2/sandboxes", params=params)
    assert answer.status_code == 200, answer.text
    return [each["sandboxID"] for each in answer.json()]


async def test_a_listed_sandbox_has_every_field_that_the_sdks_require(control: Control, now: float) -> None:
    key = await control.new(metadata={"a": "b"}, timeout=60)
    (listed,) = (await control.http.get("/v2/sandboxes")).json()
    assert listed == {
        "templateID": "host",
        "sandboxID": key,
        "clientID": "paddock",
        "alias": "base",
        "startedAt": iso(now),
        "endAt": iso(now + 60),
        "cpuCount": 1,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "metadata": {"a": "b"},
        "state": "running",
        "envdVersion": "0.6.13",
    }


async def test_a_description_has_the_rest(control: Control) -> None:
    key = await control.new(network={"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"], "maskRequestHost": "h"})
    info = await control.info(key)
    assert info["network"] == {
        "allowPublicTraffic": True,
        "allowOut": ["1.1.1.1"],
        "denyOut": ["0.0.0.0/0"],
        "maskRequestHost": "h",
    }
    assert info["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
    assert (info["allowInternetAccess"], info["domain"]) == (None, "box.test")
    assert info["envdAccessToken"] == control.world.context.tokens.access(key)


async def test_pages_hold_running_and_paused_ones_in_one_order(on_both: Control) -> None:
    made = []
    for number in range(5):
        made.append(await on_both.new(timeout=1000))
        if number % 2:
            await on_both.pause(made[-1])
        await on_both.pass_time(1)
    newest_first = made[::-1]
    found: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        answer = await on_both.http.get("/v2/sandboxes", params=params)
        found += [each["sandboxID"] for each in answer.json()]
        assert answer.headers["x-total-running"] == "3"
        if "x-next-token" not in answer.headers:
            break
        params["nextToken"] = answer.headers["x-next-token"]
    assert found == newest_first
    assert await keys(on_both, order="asc") == made
    assert await keys(on_both, order="asc", limit=1) == made[:1]
    states = {each["sandboxID"]: each["state"] for each in (await on_both.http.get("/v2/sandboxes")).json()}
    assert [states[key] for key in made] == ["running", "paused", "running", "paused", "running"]


async def test_states_are_chosen_by_comma_or_by_repetition(control: Control) -> None:
    running, paused = await control.new(), await control.new()
    await control.pause(paused)
    assert await keys(control, state="running") == [running]
    assert await keys(control, state="paused") == [paused]
    assert set(await keys(control, state="running,paused")) == {running, paused}
    assert set(await keys(control, state=["running", "paused"])) == {running, paused}
    answer = await control.http.get("/v2/sandboxes", params={"state": "paused"})
    assert "x-total-running" not in answer.headers
    refused(await control.http.get("/v2/sandboxes", params={"state": "dead"}), 400, "invalid state 'dead'")


async def test_metadata_must_match_in_every_pair(on_both: Control) -> None:
    odd = {"a b&=": "c+d/ä%41", 'q"$.[0]': "'"}
    first = await on_both.new(metadata={"user": "1", "job": "x"})
    second = await on_both.new(metadata={"user": "1", **odd})
    await on_both.new()
    assert set(await keys(on_both, metadata=double(user="1"))) == {first, second}
    assert await keys(on_both, metadata=double(user="1", job="x")) == [first]
    assert await keys(on_both, metadata=double(user="2")) == []
    assert await keys(on_both, metadata=double(**odd)) == [second]
    assert await keys(on_both, metadata="user=1&job=x") == [first]
    answer = await on_both.http.get("/v2/sandboxes", params={"metadata": double(job="x")})
    assert answer.headers["x-total-running"] == "1"
    v1 = await on_both.http.get("/sandboxes", params={"metadata": double(job="x")})
    assert [each["sandboxID"] for each in v1.json()] == [first]


@pytest.mark.parametrize("text", ["novalue", "a=b&c", "a%00=b", "&".join(f"k{n}=v" for n in range(200))])
async def test_metadata_that_cannot_be_read_is_a_bad_request(control: Control, text: str) -> None:
    answer = await control.http.get("/v2/sandboxes", params={"metadata": text})
    refused(answer, 400, "error parsing metadata")


async def test_a_list_can_begin_with_a_moment(on_both: Control) -> None:
    await on_both.new(timeout=1000)
    await on_both.pass_time(10)
    moment = iso(on_both.world.clock.now())
    later = await on_both.new(timeout=1000)
    assert await keys(on_both, startedAfter=moment) == [later]
    await on_both.pass_time(10)
    assert await keys(on_both, startedAfter=iso(on_both.world.clock.now())) == []
    refused(await on_both.http.get("/v2/sandboxes", params={"startedAfter": "yesterday"}), 400, "startedAfter")
    refused(await on_both.http.get("/v2/sandboxes", params={"startedAfter": "2030-01-01"}), 400, "time zone")


async def test_a_list_can_be_of_one_template(on_both: Control) -> None:
    base, interpreter = await on_both.new(), await on_both.new(templateID="code-interpreter-v1")
    assert await keys(on_both, template="base") == [base]
    assert await keys(on_both, template="code-interpreter-v1") == [interpreter]
    assert set(await keys(on_both, template="host")) == {base, interpreter}
    assert await keys(on_both, template="nowhere") == []
    refused(await on_both.http.get("/v2/sandboxes", params={"template": "base:default"}), 400, "without a tag")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"order": "up"}, "order"),
        ({"nextToken": "nonsense"}, "token"),
        ({"nextToken": "W251bGwsIG51bGxd"}, "token"),
        ({"nextToken": "W05hTiwgIngiXQ"}, "token"),
    ],
)
async def test_what_cannot_be_asked_of_a_list(control: Control, params: dict[str, Any], message: str) -> None:
    refused(await control.http.get("/v2/sandboxes", params=params), 400, message)


async def test_an_empty_token_is_the_first_page(control: Control) -> None:
    key = await control.new()
    assert await keys(control, nextToken="") == [key]


async def test_everybody_sees_his_own_alone(control: Control, other: Control, admin: Control) -> None:
    mine, theirs = await control.new(), await other.new()
    assert await keys(control) == [mine]
    assert await keys(other) == [theirs]
    assert await keys(admin) == []


async def test_the_first_generation_lists_what_runs(control: Control) -> None:
    running, paused = await control.new(), await control.new()
    await control.pause(paused)
    assert [each["sandboxID"] for each in (await control.http.get("/sandboxes")).json()] == [running]


async def test_native_sandboxes_are_in_the_list_with_metadata_as_text(control: Control) -> None:
    seen = await control.world.create(control.who, metadata={"n": 5, "deep": {"a": [1]}, "s": "text"})
    (listed,) = (await control.http.get("/v2/sandboxes")).json()
    assert listed["sandboxID"] == seen.sandbox.key
    assert listed["metadata"] == {"n": "5", "deep": '{"a": [1]}', "s": "text"}
    assert await keys(control, template="base") == [seen.sandbox.key]
    assert (await control.info(seen.sandbox.key))["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}


async def test_a_page_is_read_from_its_index_however_many_there_are(control: Control) -> None:
    """The plan says so: no sort, and no look at the sandboxes of others or of the dead."""
    store = control.world.context.store
    async with store.write() as connection:
        for number in range(300):
            row = a_sandbox(owner_id=control.who.user_id, state=State.PAUSED, started_at=EPOCH + number)
            await sandboxes.add(connection, row)
    seen: list[tuple[str, Any]] = []
    assert store._sqlite is not None
    event.listen(
        store._sqlite._pool, "before_cursor_execute", lambda c, cur, sql, args, *rest: seen.append((sql, args))
    )
    first = await control.http.get("/v2/sandboxes", params={"limit": 10})
    await control.http.get("/v2/sandboxes", params={"limit": 10, "nextToken": first.headers["x-next-token"]})
    pages = [(sql, args) for sql, args in seen if "ORDER BY sandboxes.started_at DESC" in sql]
    assert len(pages) == 2
    async with store.read() as connection:
        for sql, args in pages:
            plan = str((await connection.exec_driver_sql("EXPLAIN QUERY PLAN " + sql, args)).all())
            assert "ix_sandboxes_alive_started" in plan, plan
            assert "TEMP B-TREE" not in plan, plan
