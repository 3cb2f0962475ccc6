"""Previews: addresses, tokens and links, and what opens a port."""

from __future__ import annotations

from tests.daytona_control.conftest import Daytona, refused


async def test_a_preview_has_the_address_of_the_port_and_a_token(daytona: Daytona) -> None:
    made = await daytona.new()
    body = (await daytona.http.get(f"/api/sandbox/{made['id']}/ports/3000/preview-url")).json()
    assert body["url"] == f"http://3000-{made['id']}.box.test"
    assert body["sandboxId"] == made["id"]
    assert daytona.world.context.tokens.check_traffic(made["id"], body["token"])


async def test_a_signed_preview_is_good_until_it_is_called_back(daytona: Daytona) -> None:
    made = await daytona.new()
    where = f"/api/sandbox/{made['id']}/ports/3000/signed-preview-url"
    body = (await daytona.http.get(where, params={"expiresInSeconds": 120})).json()
    assert set(body) == {"sandboxId", "port", "token", "url"}
    assert body["token"] in body["url"]
    assert (await daytona.http.post(f"{where}/{body['token']}/expire")).status_code == 200
    row = await daytona.world.context.controller.by_key(made["id"])
    assert row.facade_settings is not None
    assert len(row.facade_settings["ended_links"]) == 1
    refused(await daytona.http.post(f"{where}/nonsense/expire"), 404, "not found")


async def test_a_port_that_cannot_be_is_a_bad_request(daytona: Daytona) -> None:
    made = await daytona.new()
    refused(await daytona.http.get(f"/api/sandbox/{made['id']}/ports/70000/preview-url"), 400, "")
