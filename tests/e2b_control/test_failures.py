"""Every failure under /e2b has E2B's shape, and what is not there says so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from paddock.api.auth import RateLimiter
from paddock.errors import StoreUnavailable, TooManyRequests
from tests.e2b_control.conftest import Control, refused


async def test_there_is_no_way_in_without_a_key(control: Control) -> None:
    key = control.http.headers.pop("X-API-KEY")
    answer = await control.http.get("/v2/sandboxes")
    refused(answer, 401, "API key")
    refused(await control.http.get("/v2/sandboxes", headers={"X-API-KEY": "e2b_" + "0" * 40}), 401, "")
    refused(await control.http.post("/v2/sandboxes", content=b"{"), 401, "")
    bearer = await control.http.get("/v2/sandboxes", headers={"Authorization": f"Bearer {key}"})
    assert bearer.status_code == 200


async def test_a_route_that_is_not_there(control: Control) -> None:
    for path in ("/nothing", "/sandboxes/i0/nothing", "/"):
        refused(await control.http.get(path), 404, "route not found")


async def test_a_method_that_a_route_does_not_take(control: Control) -> None:
    answer = await control.http.patch("/v2/sandboxes")
    refused(answer, 405, "method not allowed")
    assert answer.headers["allow"] == "GET, POST"


async def test_a_body_that_is_too_large(control: Control) -> None:
    body = b'{"templateID": "base", "metadata": {"a": "' + b"x" * (2 << 20) + b'"}}'
    answer = await control.http.post("/v2/sandboxes", content=body)
    refused(answer, 413, "larger than")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1 << 16):
            yield body[start : start + (1 << 16)]

    refused(await control.http.post("/v2/sandboxes", content=pieces()), 413, "larger than")


async def test_a_url_that_is_no_text(control: Control) -> None:
    refused(await control.http.get("/v2/sandboxes?metadata=%ff"), 400, "UTF-8")


async def test_a_defect_of_ours(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(control.world.context.controller, "page", broken)
    answer = await control.http.get("/v2/sandboxes")
    assert "secret" not in answer.text
    refused(answer, 500, "Internal error")


async def test_the_rate_is_limited_together_with_the_native_api(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RateLimiter, "take", _limited)
    answer = await control.http.get("/v2/sandboxes")
    refused(answer, 429, "requests per second")
    assert (answer.headers["retry-after"], answer.headers["should-retry"]) == ("2", "true")


async def test_a_database_that_does_not_answer_may_be_asked_again(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: object, **kwargs: object) -> None:
        raise StoreUnavailable("The database does not answer.")

    monkeypatch.setattr(control.world.context.controller, "page", away)
    answer = await control.http.get("/v2/sandboxes")
    refused(answer, 503, "database")
    assert answer.headers["should-retry"] == "true"


@pytest.mark.parametrize(
    "route",
    [
        "POST /sandboxes/{key}/snapshots",
        "POST /sandboxes/{key}/fork",
        "POST /v3/templates",
        "POST /v2/templates/x/builds/y",
        "GET /templates/x/files/" + "0" * 64,
        "GET /templates/x/builds/y/status",
        "PATCH /v2/templates/base",
        "POST /templates/tags",
        "DELETE /templates/tags",
        "DELETE /templates/base",
        "POST /volumes",
        "POST /secrets",
        "GET /teams",
    ],
)
async def test_what_paddock_does_not_have_is_said_once_and_not_retried(control: Control, route: str) -> None:
    method, _, path = route.partition(" ")
    key = await control.new() if "{key}" in path else ""
    answer = await control.http.request(method, path.format(key=key), content=b"{}")
    refused(answer, 501, "not available on this server")
    assert answer.headers["should-retry"] == "false"


async def test_lists_of_what_there_is_not_are_empty(control: Control) -> None:
    for path in ("/snapshots", "/snapshots?name=x&limit=10", "/volumes", "/secrets"):
        answer = await control.http.get(path)
        assert (answer.status_code, answer.json()) == (200, [])
    refused(await control.http.get("/snapshots?limit=0"), 400, "limit")
    refused(await control.http.get("/snapshots?nextToken=x"), 400, "token")


async def test_what_has_a_name_and_is_not_there(control: Control) -> None:
    for method, path in (
        ("DELETE", "/templates/snap:default"),
        ("DELETE", "/templates/team%2Fsnap%3Av1"),
        ("GET", "/templates/aliases/nowhere"),
        ("GET", "/templates/nowhere/tags"),
        ("GET", "/volumes/v"),
        ("DELETE", "/volumes/v"),
        ("GET", "/secrets/s"),
        ("POST", "/sandboxes/i0/snapshots"),
        ("POST", "/sandboxes/i0/fork"),
    ):
        answer: httpx.Response = await control.http.request(method, path, content=b"{}" if method == "POST" else None)
        assert answer.status_code == 404, (path, answer.text)
        assert answer.json()["code"] == 404


async def test_templates_are_the_providers(control: Control) -> None:
    (template,) = (await control.http.get("/templates", params={"teamID": "x"})).json()
    assert (template["templateID"], template["aliases"]) == ("host", ["base", "code-interpreter-v1"])
    assert set(template) == {
        "templateID",
        "buildID",
        "cpuCount",
        "memoryMB",
        "diskSizeMB",
        "public",
        "aliases",
        "names",
        "createdAt",
        "updatedAt",
        "createdBy",
        "lastSpawnedAt",
        "spawnCount",
        "buildCount",
        "envdVersion",
        "buildStatus",
    }
    for name in ("base", "code-interpreter-v1", "host"):
        answer = await control.http.get(f"/templates/aliases/{name}")
        assert (answer.status_code, answer.json()) == (200, {"templateID": "host", "public": True})
    (tag,) = (await control.http.get("/templates/base/tags")).json()
    assert (tag["tag"], tag["buildID"]) == ("default", template["buildID"])


async def test_health_needs_no_key(control: Control) -> None:
    del control.http.headers["X-API-KEY"]
    answer = await control.http.get("/health")
    assert (answer.status_code, answer.headers["content-length"]) == (204, "0")


def _limited(self: RateLimiter, who: object) -> None:
    raise TooManyRequests("5 requests per second; wait a moment.", retry_after=1.2)
