"""Who may: the sandbox's token, or a signature of the URL; and how a signed URL finds its sandbox."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.api.conftest import LiveServer
from tests.envd.box import ENVD, Box
from tests.envd.conftest import NewBox

UNAUTHORIZED = {
    "code": 401,
    "message": "unauthorized access, please provide a valid access token or method signing if supported",
}


def routing(box: Box, **more: str) -> dict[str, str]:
    return {"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": ENVD, **more}


def denied(answer: httpx.Response, message: str) -> None:
    assert (answer.status_code, answer.json()) == (401, {"code": 401, "message": message})


@pytest.mark.parametrize("token", [None, "", "wrong", "0" * 64, "ü"])
async def test_without_its_token_nothing_goes(box: Box, token: str | None) -> None:
    header = {} if token is None else {"X-Access-Token": token.encode()}
    headers = {**{name: value.encode() for name, value in routing(box).items()}, **header}
    for method, path in (("POST", "/process.Process/List"), ("GET", "/metrics"), ("GET", "/envs"), ("GET", "/x")):
        answer = await box.client.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)


async def test_the_token_of_another_sandbox_opens_nothing(box: Box, new_box: NewBox) -> None:
    other = await new_box()
    answer = await box.client.get("/envs", headers=routing(box, **{"X-Access-Token": other.token}))
    assert answer.status_code == 401


async def test_an_api_key_is_no_token(box: Box, server: LiveServer) -> None:
    answer = await box.client.get("/envs", headers=routing(box, **{"X-API-Key": server.key}))
    assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)


async def test_every_form_of_address_leads_to_it(box: Box) -> None:
    token = {"X-Access-Token": box.token}
    for name in (box.key, f"{box.key}-client"):
        by_host = await box.client.get("/envs", headers={"Host": f"{ENVD}-{name}.example.test", **token})
        assert by_host.json()["E2B_SANDBOX_ID"] == box.key
        by_header = await box.client.get("/envs", headers={"E2b-Sandbox-Id": name, "E2b-Sandbox-Port": ENVD, **token})
        assert by_header.json()["E2B_SANDBOX_ID"] == box.key
    for name in (box.key, box.sandbox_id):
        by_path = await box.client.get(f"/p/{name}/{ENVD}/envs", headers=token)
        assert by_path.json()["E2B_SANDBOX_ID"] == box.key


async def test_a_name_that_can_be_guessed_tells_nothing_without_a_token(box: Box) -> None:
    for name in (box.sandbox_id, "alice_00000000"):
        for path in ("health", "envs", "files?path=x", "files?path=x&signature=v1_x"):
            answer = await box.client.get(f"/p/{name}/{ENVD}/{path}")
            assert answer.status_code == 401
    allowed = await box.client.get(f"/p/{box.sandbox_id}/{ENVD}/health", headers={"X-Access-Token": box.token})
    assert allowed.status_code == 204


# Signatures


async def test_a_signature_opens_one_path_for_one_thing(box: Box) -> None:
    await box.put("/tmp/file", b"content")
    read, write = box.signature("/tmp/file", "read"), box.signature("/tmp/file", "write")
    assert (await box.client.get("/files", params=read, headers=routing(box))).content == b"content"
    denied(await box.client.get("/files", params=write, headers=routing(box)), "invalid signature")
    denied(
        await box.client.get("/files", params={**read, "path": "/tmp/other"}, headers=routing(box)), "invalid signature"
    )
    denied(
        await box.client.get("/files", params={"path": "/tmp/file"}, headers=routing(box)),
        "missing signature query parameter",
    )
    other = await box.client.get("/envs", params=read, headers=routing(box))
    assert (other.status_code, other.json()) == (401, UNAUTHORIZED)


async def test_a_wrong_token_is_not_made_good_by_a_signature(box: Box) -> None:
    await box.put("/tmp/file", b"content")
    signed = box.signature("/tmp/file", "read")
    answer = await box.client.get("/files", params=signed, headers=routing(box, **{"X-Access-Token": "wrong"}))
    assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)


async def test_a_signature_has_its_time_and_its_user(box: Box) -> None:
    await box.put("/root/file", b"of root", {"username": "root"})
    later, before = int(time.time()) + 60, int(time.time()) - 2
    good = box.signature("file", "read", "root", later)
    assert (await box.client.get("/files", params=good, headers=routing(box))).content == b"of root"
    late = box.signature("file", "read", "root", before)
    denied(await box.client.get("/files", params=late, headers=routing(box)), "signature is already expired")
    forged = {**late, "signature_expiration": str(later)}
    denied(await box.client.get("/files", params=forged, headers=routing(box)), "invalid signature")
    denied(
        await box.client.get("/files", params={**good, "username": "user"}, headers=routing(box)), "invalid signature"
    )


async def test_a_signature_finds_its_sandbox_by_itself(new_box: NewBox, client: httpx.AsyncClient) -> None:
    boxes = [await new_box() for _ in range(4)]
    for number, box in enumerate(boxes):
        signed = box.signature("/tmp/file", "write")
        answer = await client.post(
            "/files", params=signed, content=f"{number}".encode(), headers={"Content-Type": "application/octet-stream"}
        )
        assert answer.status_code == 200, answer.text
    for number, box in enumerate(boxes):
        for _ in range(2):
            answer = await client.get("/files", params=box.signature("/tmp/file", "read"))
            assert answer.content == str(number).encode()
    unsigned = {**boxes[0].signature("/tmp/file", "read"), "signature": "v1_wrong"}
    denied(await client.get("/files", params=unsigned), "invalid signature")
    late = boxes[0].signature("/tmp/file", "read", "", int(time.time()) - 2)
    denied(await client.get("/files", params=late), "signature is already expired")


async def test_an_upload_by_parts_may_be_signed_too(box: Box, client: httpx.AsyncClient) -> None:
    signed = box.signature("/tmp/up", "write", "user")
    answer = await client.post("/files", params=signed, files={"file": ("name", b"content")})
    assert answer.json()[0]["path"] == "/tmp/up"


async def test_many_wrong_signatures_at_once_are_all_refused(box: Box, client: httpx.AsyncClient) -> None:
    wrong = [{"path": "/tmp/x", "signature": f"v1_{n}"} for n in range(40)]
    answers = await asyncio.gather(*(client.get("/files", params=params) for params in wrong))
    assert {answer.status_code for answer in answers} == {401}
