"""Making a sandbox: what is given, what is refused, and what the answer says."""

from __future__ import annotations

import pytest

from tests.daytona_control.conftest import Daytona, refused

REQUIRED = {
    "id",
    "organizationId",
    "name",
    "user",
    "env",
    "labels",
    "public",
    "networkBlockAll",
    "kvm",
    "target",
    "cpu",
    "gpu",
    "memory",
    "disk",
    "toolboxProxyUrl",
}


async def test_a_create_without_a_wish_answers_with_every_field_that_clients_require(daytona: Daytona) -> None:
    made = await daytona.new()
    assert set(made) >= REQUIRED
    assert made["state"] == made["desiredState"] == "started"
    assert made["name"] == made["id"]
    assert all(isinstance(made[name], int) for name in ("cpu", "gpu", "memory", "disk"))
    assert made["toolboxProxyUrl"] == "http://paddock.test/daytona/toolbox"
    assert made["organizationId"] == "erin"


async def test_a_create_without_a_body_is_fine(daytona: Daytona) -> None:
    answer = await daytona.http.post("/api/sandbox")
    assert answer.status_code == 200


async def test_intervals_that_were_not_named_are_daytonas_defaults(daytona: Daytona) -> None:
    made = await daytona.new()
    assert (made["autoStopInterval"], made["autoPauseInterval"]) == (15, 0)
    assert (made["autoArchiveInterval"], made["autoDeleteInterval"]) == (10080, -1)


async def test_what_was_asked_for_comes_back(daytona: Daytona) -> None:
    made = await daytona.new(
        name="builder",
        env={"A": "1"},
        labels={"team": "red"},
        public=True,
        cpu=2,
        memory=3,
        disk=4,
        autoStopInterval=7,
        autoArchiveInterval=60,
        autoDeleteInterval=120,
        target="eu",
    )
    assert made["name"] == "builder"
    assert made["env"]["A"] == "1"
    assert made["labels"] == {"team": "red"}
    assert made["public"] is True
    assert (made["cpu"], made["memory"], made["disk"]) == (2, 3, 4)
    assert (made["autoStopInterval"], made["autoArchiveInterval"], made["autoDeleteInterval"]) == (7, 60, 120)
    assert made["target"] == "eu"


async def test_its_commands_see_its_variables(daytona: Daytona) -> None:
    made = await daytona.new(env={"GREETING": "hello"})
    said = await daytona.run(made["id"], "echo $GREETING $DAYTONA_SANDBOX_ID")
    assert said["result"] == f"hello {made['id']}\n"


async def test_a_name_is_one_owners_alone(daytona: Daytona, other: Daytona) -> None:
    await daytona.new(name="mine")
    refused(await daytona.create(name="mine"), 409, "already exists")
    assert (await other.new(name="mine"))["name"] == "mine"


async def test_the_name_of_a_deleted_sandbox_is_free_again(daytona: Daytona) -> None:
    first = await daytona.new(name="again")
    await daytona.http.delete("/api/sandbox/again")
    second = await daytona.new(name="again")
    assert second["id"] != first["id"]


async def test_names_are_kept_apart_on_every_database(on_both: Daytona) -> None:
    await on_both.new(name="mine")
    refused(await on_both.create(name="mine"), 409, "already exists")
    assert (await on_both.info("mine"))["name"] == "mine"


@pytest.mark.parametrize("name", ["-x", "a/b", "a\nb", "x" * 129, "ä"])
async def test_a_name_that_cannot_be_one_is_refused(daytona: Daytona, name: str) -> None:
    refused(await daytona.create(name=name), 400, "cannot be a name")


async def test_a_snapshot_is_a_template_of_the_provider(daytona: Daytona) -> None:
    known = (await daytona.http.get("/api/snapshots")).json()["items"][0]["name"]
    assert (await daytona.new(snapshot=known))["snapshot"] == known
    refused(await daytona.create(snapshot="nowhere"), 404, "nowhere")


async def test_an_image_that_no_template_is_named_after_is_refused(daytona: Daytona) -> None:
    refused(await daytona.create(buildInfo={"dockerfileContent": "FROM debian:12\n"}), 400, "debian:12")
    refused(await daytona.create(buildInfo={"dockerfileContent": "FROM a\nRUN b\n"}), 501, "Building images")


@pytest.mark.parametrize(
    "wish",
    [
        {"gpu": 1},
        {"kvm": True},
        {"volumes": [{"volumeId": "v", "mountPath": "/v"}]},
        {"secrets": [{"A": "b"}]},
        {"linkedSandbox": "x"},
        {"outboundProxyUrl": "http://proxy"},
    ],
)
async def test_what_paddock_has_not_is_refused_and_makes_nothing(daytona: Daytona, wish: dict[str, object]) -> None:
    refused(await daytona.create(**wish), 501, "not available", "NOT_SUPPORTED")
    assert await daytona.names() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"autoStopInterval": -1},
        {"autoStopInterval": 1441},
        {"autoStopInterval": 5, "autoPauseInterval": 5},
        {"autoPauseInterval": 5, "autoDeleteInterval": 0},
        {"autoStopInterval": "soon"},
        {"cpu": 0},
        {"labels": {"a": 1}},
        {"env": {"no-name": "x"}},
        {"user": "nobody-here"},
        {"networkAllowList": "not an address"},
        {"ttlMinutes": -1},
    ],
)
async def test_what_makes_no_sense_is_a_bad_request(daytona: Daytona, fields: dict[str, object]) -> None:
    refused(await daytona.create(**fields), 400, "")
    assert await daytona.names() == []


async def test_quotas_hold_here_too(daytona: Daytona) -> None:
    daytona.world.context.settings.quota_live = 1
    await daytona.new()
    body = refused(await daytona.create(), 429, "")
    assert body["error"] == "Too Many Requests"


async def test_network_settings_become_an_egress_policy(daytona: Daytona) -> None:
    made = await daytona.new(domainAllowList="example.org, *.example.com")
    assert made["domainAllowList"] == "example.org, *.example.com"
    row = await daytona.world.context.controller.by_key(made["id"])
    assert row.egress["allow"] == ["example.org", "*.example.com"]
    blocked = await daytona.new(networkBlockAll=True)
    assert blocked["networkBlockAll"] is True
