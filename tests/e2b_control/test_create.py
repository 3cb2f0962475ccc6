"""Creating sandboxes in E2B's words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paddock.clock import iso
from paddock.models import ChangeUser, QuotaChange, TimeoutAction, TimeoutFrom
from tests.e2b_control.conftest import Control, refused


async def test_create_answers_everything_that_the_sdks_read(control: Control) -> None:
    answer = await control.create(metadata={}, envVars={})
    assert answer.status_code == 201
    body = answer.json()
    assert re.fullmatch("i[a-z0-9]{20}", body["sandboxID"])
    tokens = control.world.context.tokens
    assert body == {
        "templateID": "host",
        "sandboxID": body["sandboxID"],
        "clientID": "paddock",
        "alias": "base",
        "envdVersion": "0.6.13",
        "envdAccessToken": tokens.access(body["sandboxID"]),
        "trafficAccessToken": None,
        "domain": "box.test",
    }


@pytest.mark.parametrize("name", ["base", "code-interpreter-v1", "base:default", "Base"])
async def test_the_names_that_clients_use_by_themselves_are_the_default_template(control: Control, name: str) -> None:
    body = (await control.create(templateID=name)).json()
    assert body["templateID"] == "host"
    assert body["alias"] == name.lower().partition(":")[0]


async def test_a_template_of_the_provider_has_no_alias(control: Control) -> None:
    body = (await control.create(templateID="host")).json()
    assert body["templateID"] == "host"
    assert "alias" not in body


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("nowhere", 404, "template 'nowhere' not found"),
        ("base:nightly", 404, "template 'base' with tag 'nightly' not found"),
        ("", 400, "Invalid template reference"),
        ("a b", 400, "Invalid template reference"),
        ("x" * 5000, 404, "not found"),
    ],
)
async def test_an_unknown_template_is_refused_in_e2b_words(
    control: Control, name: str, status: int, message: str
) -> None:
    refused(await control.create(templateID=name), status, message)


async def test_yes_and_no_are_that_in_json(control: Control) -> None:
    key = await control.new(autoResume={"enabled": True})
    text = (await control.http.get(f"/sandboxes/{key}")).text
    assert '"autoResume":true' in text
    assert '"allowPublicTraffic":true' in text


async def test_its_row_is_what_was_asked_for(control: Control) -> None:
    key = await control.new(
        timeout=60,
        metadata={"job": "7"},
        envVars={"A": "b"},
        autoPause=True,
        autoResume={"enabled": True},
        network={"allowPublicTraffic": False, "maskRequestHost": "localhost:${PORT}"},
        somethingNew={"from": "a later client"},
    )
    row = await control.world.row(await control.sandbox_id(key))
    assert (row.owner_id, row.user_id) == (control.who.user_id, control.who.user_id)
    assert (row.timeout, row.timeout_from, row.on_timeout) == (60, TimeoutFrom.START, TimeoutAction.PAUSE)
    assert (row.auto_resume, row.public_ports, row.host_mask) == (True, False, "localhost:${PORT}")
    assert row.metadata == {"job": "7"}
    assert row.env == {"A": "b", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": key, "E2B_TEMPLATE_ID": "host"}


async def test_what_the_caller_sets_wins_over_what_the_sandbox_is_told(control: Control) -> None:
    key = await control.new(envVars={"E2B_SANDBOX": "perhaps"})
    assert (await control.world.row(await control.sandbox_id(key))).env["E2B_SANDBOX"] == "perhaps"


async def test_without_wishes_it_is_killed_at_its_end_sleeps_on_and_is_public(control: Control) -> None:
    row = await control.world.row(await control.sandbox_id(await control.new()))
    assert (row.on_timeout, row.auto_resume, row.public_ports) == (TimeoutAction.DELETE, False, True)


@pytest.mark.parametrize(("v1", "seconds"), [(False, 300), (True, 15)])
async def test_the_default_timeout_is_that_of_the_generation(
    control: Control, now: float, v1: bool, seconds: int
) -> None:
    key = (await control.create(v1=v1)).json()["sandboxID"]
    assert (await control.info(key))["endAt"] == iso(now + seconds)


async def test_the_first_generation_is_secured_too(control: Control) -> None:
    assert (await control.create(v1=True, secure=False)).json()["envdAccessToken"]


@pytest.mark.parametrize(
    ("timeout", "message"),
    [
        (0, "Timeout must be greater than 0"),
        (-5, "Timeout must be"),
        (86_401, "Timeout cannot be greater than 24 hours"),
    ],
)
async def test_a_timeout_out_of_bounds_is_refused(control: Control, timeout: int, message: str) -> None:
    refused(await control.create(timeout=timeout), 400, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"autoPauseMemory": False}, "autoPauseMemory: false needs autoPause"),
        ({"autoPauseMemory": False, "autoPause": True, "autoResume": {"enabled": True}}, "excludes autoResume"),
        ({"iam": {"tokens": {"x": {}}}}, "iam"),
        ({"mcp": {"browserbase": {}}}, "paddock mcp add"),
        ({"templateID": "mcp-gateway"}, "paddock mcp add"),
        ({"volumeMounts": [{"name": "v", "path": "/v"}]}, "Volume mounts"),
        ({"timeout": "60"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 20_000}}, "metadata"),
        ({"envVars": {"not a name": "x"}}, "env"),
        ({"envVars": {"A": "nul\0"}}, "env"),
        ({"templateID": 5}, "templateID"),
    ],
)
async def test_what_cannot_be_is_a_bad_request(control: Control, fields: dict[str, Any], message: str) -> None:
    refused(await control.create(**fields), 400, message)


async def test_a_body_that_is_no_object_is_a_bad_request(control: Control) -> None:
    for body in (b"", b"[]", b"{", b"null", b'{"templateID": "base", "metadata": {"a": "\\ud800"}}'):
        answer = await control.http.post("/v2/sandboxes", content=body, headers={"Content-Type": "application/json"})
        refused(answer, 400, "")


async def test_traffic_has_a_token_only_where_ports_are_not_public(control: Control) -> None:
    made = (await control.create(network={"allowPublicTraffic": False})).json()
    tokens = control.world.context.tokens
    assert made["trafficAccessToken"] == tokens.traffic(made["sandboxID"])
    again = (await control.connect(made["sandboxID"])).json()
    assert again["trafficAccessToken"] == made["trafficAccessToken"]


async def test_a_quota_is_told_as_a_rate_limit_that_waiting_does_not_lift(control: Control, admin: Control) -> None:
    context = control.world.context
    await context.accounts.change_user(admin.who, control.who.user_id, ChangeUser(quota=QuotaChange(max_live=1)))
    await control.new()
    answer = await control.create()
    refused(answer, 429, "live sandboxes")
    assert answer.headers["should-retry"] == "false"
