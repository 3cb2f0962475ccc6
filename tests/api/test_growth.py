"""Bodies that cost far more to complain about than to send: refused everywhere, for about the cost of reading them."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from fastapi import FastAPI

from paddock import json_limits
from tests.api.all_routes import all_routes
from tests.api.conftest import assert_error

FIELDS = 60_000
"""Just under the megabyte that a body may have."""
MAX_RATIO = 15.0
"""Of what a refusal costs, to what parsing alone would."""


def many_fields(count: int) -> bytes:
    return json.dumps({f"field{number}": 1 for number in range(count)}).encode()


def filled(path: str, sandbox: str) -> str:
    return path.replace("{sandbox_id}", sandbox).replace("{", "").replace("}", "")


async def test_every_route_refuses_a_body_of_very_many_fields(
    app: FastAPI, client: httpx.AsyncClient, key: str, sandbox: str
) -> None:
    body = many_fields(FIELDS)
    assert len(body) < 1 << 20
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}  # Daytona reads no `X-API-Key`
    began = time.thread_time()
    json.loads(body)
    parsing = time.thread_time() - began
    asked = [(route.method, route.path) for route in await all_routes(app) if route.takes_json]
    assert len(asked) > 40
    for facade in ("/e2b/", "/daytona/api/", "/daytona/toolbox/"):
        assert any(path.startswith(facade) for _, path in asked)
    for method, path in asked:
        costs = []
        for _ in range(2):
            began = time.thread_time()
            answer = await client.request(method, filled(path, sandbox), content=body, headers=headers)
            costs.append(time.thread_time() - began)
        assert 400 <= answer.status_code < 500, (path, answer.text[:300])
        assert f"{json_limits.MAX_REQUEST_VALUES} values" in answer.text, (path, answer.text[:300])
        assert len(answer.content) < 10_000
        assert min(costs) < MAX_RATIO * parsing, (method, path, costs, parsing)


@pytest.mark.parametrize("body", [many_fields(FIELDS), b'{"arguments": [' + b"[]," * 100_000 + b"[]]}"])
async def test_the_refusal_says_how_many_values_there_may_be(
    client: httpx.AsyncClient, sandbox: str, body: bytes
) -> None:
    for path in ("/sandboxes/run-command", f"/sandboxes/{sandbox}/tools/read_file", "/sandboxes/create"):
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        error = assert_error(answer, 422, "invalid_request")
        assert error["details"] == {"max_values": json_limits.MAX_REQUEST_VALUES}


async def test_of_many_problems_the_first_are_told_and_the_rest_are_counted(client: httpx.AsyncClient) -> None:
    answer = await client.post("/sandboxes/create", json={f"field{number}": 1 for number in range(5000)})
    error = assert_error(answer, 422, "invalid_request")
    assert len(error["details"]["errors"]) == 20
    assert error["message"].endswith("more")
    assert "… and 49" in error["message"]


async def test_a_long_text_full_of_commas_is_one_value(client: httpx.AsyncClient, sandbox: str) -> None:
    text = '{"a": [1, 2, "\\\\"]},\n' * 20_000
    written = await client.post(
        f"/sandboxes/{sandbox}/tools/write_file", json={"arguments": {"path": "a.json", "content": text}}
    )
    assert written.status_code == 200, written.text[:500]
    assert written.json()["data"]["size"] == len(text)


async def test_files_of_many_megabytes_still_go_both_ways_as_json(client: httpx.AsyncClient, sandbox: str) -> None:
    text = "a line, of many\n" * 400_000
    asked = {"sandbox_id": sandbox, "path": "/workspace/large"}
    written = await client.post("/sandboxes/write-file", json={**asked, "content": text})
    assert written.status_code == 200, written.text[:500]
    assert (await client.post("/sandboxes/read-file", json=asked)).json()["content"] == text
    read = (await client.post("/sandboxes/read-file", json={**asked, "encoding": "base64"})).json()
    again = await client.post("/sandboxes/write-file", json={**asked, "content": read["content"], "encoding": "base64"})
    assert again.json()["file"]["size"] == len(text)
    bad = {**asked, "content": "QUJD" * 300_000 + "QQ==QUJD", "encoding": "base64"}
    assert_error(await client.post("/sandboxes/write-file", json=bad), 422)
