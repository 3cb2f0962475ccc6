"""Lists: filters, orders and cursors."""

from __future__ import annotations

import json

import pytest

from tests.daytona_control.conftest import Daytona, refused


async def test_a_list_has_every_field_that_clients_require_of_an_item(daytona: Daytona) -> None:
    await daytona.new(name="one")
    body = (await daytona.http.get("/api/sandbox")).json()
    assert body["nextCursor"] is None
    required = {"id", "organizationId", "name", "target", "user", "public", "networkBlockAll", "cpu", "gpu", "memory"}
    assert set(body["items"][0]) >= required | {"disk", "labels", "toolboxProxyUrl", "state"}


async def test_pages_go_on_where_the_last_one_ended(on_both: Daytona) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await on_both.new(name=name)
    seen, cursor = [], ""
    while True:
        query = {"limit": 2, "sort": "name", "order": "asc"} | ({"cursor": cursor} if cursor else {})
        body = (await on_both.http.get("/api/sandbox", params=query)).json()
        seen += [item["name"] for item in body["items"]]
        if not (cursor := body["nextCursor"]):
            break
    assert seen == names


async def test_filters_narrow_a_list(on_both: Daytona) -> None:
    first = await on_both.new(name="alpha", labels={"team": "red", "x": "1"}, public=True, cpu=2)
    await on_both.new(name="beta", labels={"team": "blue"}, memory=4, ttlMinutes=10)
    await on_both.act("beta", "stop")
    assert await on_both.names(labels=json.dumps({"team": "red"})) == ["alpha"]
    assert await on_both.names(labels=json.dumps({"team": "red", "x": "2"})) == []
    assert await on_both.names(states=["stopped"]) == ["beta"]
    assert sorted(await on_both.names(states=["stopped", "started"])) == ["alpha", "beta"]
    assert await on_both.names(isPublic="true") == ["alpha"]
    assert await on_both.names(name="ALP") == ["alpha"]
    assert await on_both.names(id=first["id"][:8]) == ["alpha"]
    assert await on_both.names(minCpu=2) == ["alpha"]
    assert await on_both.names(minMemoryGiB=4) == ["beta"]
    assert await on_both.names(autoDestroyAtAfter="2000-01-01T00:00:00Z") == ["beta"]
    assert await on_both.names(createdAtBefore="2000-01-01T00:00:00Z") == []
    assert await on_both.names(isRecoverable="true") == []


async def test_the_newest_comes_first_unless_another_order_is_asked_for(daytona: Daytona) -> None:
    for name, cpu in (("a", 3), ("b", 1), ("c", 2)):
        await daytona.new(name=name, cpu=cpu)
        await daytona.pass_time(1)
    assert await daytona.names() == ["c", "b", "a"]
    assert await daytona.names(sort="cpu", order="asc") == ["b", "c", "a"]


async def test_a_list_holds_ones_own_sandboxes_only(daytona: Daytona, other: Daytona) -> None:
    await daytona.new(name="mine")
    assert await other.names() == []


async def test_a_question_that_makes_no_sense_is_a_bad_request(daytona: Daytona) -> None:
    for query in ({"labels": "no json"}, {"cursor": "nonsense"}, {"limit": 0}, {"sort": "colour"}, {"labels": "[1]"}):
        refused(await daytona.http.get("/api/sandbox", params=query), 400, "")


@pytest.mark.parametrize(
    ("labels", "message"),
    [({str(number): "" for number in range(101)}, "at most 100 labels"), ({"\ud800": "x"}, "valid Unicode")],
    ids=["many", "lone surrogate"],
)
async def test_labels_that_would_cost_much_or_cannot_be_asked_for(
    daytona: Daytona, labels: dict[str, str], message: str
) -> None:
    refused(await daytona.http.get("/api/sandbox", params={"labels": json.dumps(labels)}), 400, message)


async def test_a_moment_outside_of_all_time_is_a_bad_request(daytona: Daytona) -> None:
    refused(await daytona.http.get("/api/sandbox", params={"createdAtAfter": "0001-01-01T00:00:00"}), 400, "moment")
