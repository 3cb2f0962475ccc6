"""Failures are in Daytona's form, whatever went wrong, and lists of what is not there are empty."""

from __future__ import annotations

import pytest

from paddock import errors
from paddock.api.auth import RateLimiter
from tests.daytona_control.conftest import Daytona, refused


async def test_without_a_key_nobody_is_let_in(daytona: Daytona) -> None:
    made = await daytona.new()
    for path in ("/api/sandbox", f"/toolbox/{made['id']}/work-dir"):
        answer = await daytona.http.get(path, headers={"Authorization": ""})
        refused(answer, 401, "API key")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_route_that_does_not_exist_is_not_found_in_daytonas_form(daytona: Daytona) -> None:
    refused(await daytona.http.get("/api/nothing"), 404, "Cannot GET")
    refused(await daytona.http.get("/api/socket.io/?EIO=4&transport=websocket"), 404, "Cannot GET")
    refused(await daytona.http.get("/toolbox/x/nothing"), 404, "Cannot GET")
    answer = await daytona.http.patch("/api/sandbox")
    refused(answer, 405, "not allowed")
    assert set(answer.headers["allow"].split(", ")) >= {"GET", "POST"}


async def test_a_body_that_is_no_json_is_a_bad_request(daytona: Daytona) -> None:
    answer = await daytona.http.post("/api/sandbox", content=b"{", headers={"Content-Type": "application/json"})
    refused(answer, 400, "JSON")


async def test_a_failure_of_the_toolbox_names_the_daemon_as_its_source(daytona: Daytona) -> None:
    made = await daytona.new()
    answer = await daytona.http.get(f"/toolbox/{made['id']}/files/info", params={"path": "/nowhere"})
    body = refused(answer, 404, "/nowhere", "FILE_NOT_FOUND")
    assert body["source"] == "DAYTONA_DAEMON"
    assert body["path"].endswith("/files/info")


async def test_too_many_requests_say_when_to_come_back(daytona: Daytona, monkeypatch: pytest.MonkeyPatch) -> None:
    def spent(*words: object) -> None:
        raise errors.TooManyRequests("erin is limited to 1 requests per second", retry_after=0.4)

    monkeypatch.setattr(RateLimiter, "take", spent)
    answer = await daytona.http.get("/api/volumes")
    assert refused(answer, 429, "requests per second")["error"] == "Too Many Requests"
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["volumes", "secret", "warm-pools"])
async def test_lists_of_what_nobody_can_make_are_empty(daytona: Daytona, path: str) -> None:
    assert (await daytona.http.get(f"/api/{path}")).json() == []
    refused(await daytona.http.post(f"/api/{path}", json={"name": "x"}), 501, "not available", "NOT_SUPPORTED")


async def test_what_is_not_there_is_not_found(daytona: Daytona) -> None:
    for path in ("volumes/by-name/x", "volumes/x", "secret/x", "snapshots/x"):
        refused(await daytona.http.get(f"/api/{path}"), 404, "x not found")


@pytest.mark.parametrize("what", ["resize", "fork", "backup", "ssh-access"])
async def test_what_paddock_cannot_do_with_a_sandbox_is_refused(daytona: Daytona, what: str) -> None:
    made = await daytona.new()
    refused(await daytona.act(made["id"], what), 501, "not available")
    refused(await daytona.act("nobody", what), 404, "not found")


async def test_computer_use_is_refused(daytona: Daytona) -> None:
    made = await daytona.new()
    for method, path in (("POST", "start"), ("GET", "status"), ("POST", "mouse/click"), ("GET", "screenshot")):
        answer = await daytona.http.request(method, f"/toolbox/{made['id']}/computeruse/{path}")
        refused(answer, 501, "Computer use")


async def test_templates_are_shown_as_snapshots(daytona: Daytona) -> None:
    body = (await daytona.http.get("/api/snapshots", params={"limit": 1})).json()
    assert (body["page"], len(body["items"])) == (1, 1)
    snapshot = body["items"][0]
    assert (snapshot["state"], snapshot["general"]) == ("active", True)
    assert (await daytona.http.get(f"/api/snapshots/{snapshot['name']}")).json() == snapshot
    assert {"size", "entrypoint", "errorReason", "lastUsedAt", "sourceSandboxId"} <= set(snapshot)


async def test_the_configuration_tells_where_things_are(daytona: Daytona) -> None:
    body = (await daytona.http.get("/api/config")).json()
    assert body["proxyToolboxUrl"] == "http://paddock.test/daytona/toolbox"
    assert body["proxyTemplateUrl"] == "http://{{PORT}}-{{sandboxId}}.box.test"


async def test_an_unexpected_failure_is_a_500_that_says_nothing_of_the_inside(
    daytona: Daytona, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*words: object, **named: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(daytona.world.context.controller, "page", broken)
    body = refused(await daytona.http.get("/api/sandbox"), 500, "")
    assert "secret" not in body["message"]
